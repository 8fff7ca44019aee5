// The user's source, with the share of the time of each line.

function sourcePane() {
  const root = document.getElementById("source");
  const state = { source: 0, rows: [], open: [] };
  const error = contents.error;
  if (contents.first >= 0) state.source = contents.places[contents.first].source;
  const times = lineTimes();
  const most = Math.max(...[...times.values()].map((time) => time.total), 0);

  const lines = new Lines("source", (index) => row(index), (index) => classes(index));
  const choice = element("select", { "aria-label": "file", onchange: () => choose(Number(choice.value)) },
    ...contents.sources.map((source, k) => element("option", { value: k, title: source.path }, source.name)));
  const bar = element("div", { class: "bar" }, contents.sources.length > 1 ? choice : element("span", {},
    contents.sources.length ? contents.sources[0].name : "the source is not at hand"), element("span", { class: "grow" }));
  if (most) {
    bar.append("time of each line:", element("span", {}, element("span", { class: "swatch", style: "background:var(--forward)" }), "forward"));
    if ([...times.values()].some((time) => time.backward)) {
      bar.append(element("span", {}, element("span", { class: "swatch", style: "background:var(--backward)" }), "backward"));
    }
  }
  root.append(bar, lines.root);

  function choose(source) {
    state.source = source;
    choice.value = source;
    const text = contents.sources[source] ? contents.sources[source].lines : [];
    state.open = openStrings(text);
    state.rows = text.map((_, k) => ({ line: k + 1 }));
    if (error && error.at >= 0 && contents.places[error.at].source === source) {
      const at = contents.places[error.at].line;
      const said = error.lines.map((words) => ({ message: words }));
      state.rows.splice(at, 0, ...said);
    }
    lines.show(state.rows.length, 0);
  }

  function classes(index) {
    const { line, message } = state.rows[index];
    if (message !== undefined) return "message";
    const places = placesAt(state.source, line);
    return error && places.includes(error.at) ? "linked wrong" : selectedClass(places);
  }

  function row(index) {
    const { line, message } = state.rows[index];
    if (message !== undefined) {
      return element("div", {}, element("span", { class: "number" }), element("span", { class: "text" }, message));
    }
    const places = placesAt(state.source, line);
    const text = contents.sources[state.source].lines[line - 1];
    const time = times.get(`${state.source}:${line}`);
    const heat = element("span", { class: "heat" });
    if (time && most) {
      heat.title = `${seconds(time.total)}, ${percent(time.total / contents.time.seconds)} of a call`;
      const [ahead, back] = [time.forward, time.backward].map((part) => (100 * part) / most);
      if (back) heat.append(element("i", { style: `right:${ahead}%;width:${back}%` }));
      if (ahead) heat.append(element("i", { class: "forward", style: `width:${ahead}%` }));
    }
    return element("div", {
      role: "listitem", "data-line": line,
      onmouseenter: () => hover(places), onmouseleave: () => hover([]), onclick: () => places.length && pin(places, "source"),
    }, element("span", { class: "number" }, String(line)), most ? heat : null,
    element("span", { class: "text" }, ...colouredPython(text, state.open[line - 1])));
  }

  onSelect(({ from }) => {
    if (from && from !== "source" && selection.pin.size) {
      const chosen = [...selection.pin].map((p) => contents.places[p]);
      const here = chosen.filter((place) => place.source === state.source);
      if (!here.length) choose(chosen[0].source);
      const at = Math.min(...chosen.filter((place) => place.source === state.source).map((place) => place.line));
      lines.scrollTo(state.rows.findIndex((r) => r.line === at));
    } else {
      lines.restyle();
    }
  });

  choose(state.source);
  if (contents.first >= 0) {
    const at = contents.places[contents.first].line;
    requestAnimationFrame(() => lines.scrollTo(Math.max(0, at - 2)));
  }
}

/** Returns the seconds of each line by "source:line": in all, forward and backward. */
function lineTimes() {
  const times = new Map();
  for (const frame of contents.time.frames) {
    if (frame.at < 0) continue;
    const place = contents.places[frame.at];
    const key = `${place.source}:${place.line}`;
    if (!times.has(key)) times.set(key, { total: 0, forward: 0, backward: 0 });
    const time = times.get(key);
    time.total += frame.seconds;
    time[place.part] += frame.seconds;
  }
  return times;
}
