// The panel of stages: the chosen one by lines, linked with the source.

const FOLDED_FROM = 3000;
const LANGUAGES = { llvm: "llvm", asm: "asm", cuda: "cuda", ptx: "asm", sass: "asm" };

function stagesPanel() {
  const root = element("div", { class: "panel" });
  const names = contents.stages.map((stage) => stage.name);
  const state = { stage: null, text: null, visible: [], closed: new Set(), at: 0, hits: [] };
  const loaded = new Map();
  const choice = element("div", { class: "bar stages", role: "tablist", "aria-label": "stage" },
    ...names.map((name) => element("button", { role: "tab", "data-stage": name, onclick: () => choose(name) }, name)));
  const status = element("div", { class: "bar", "aria-live": "polite" });
  const lines = new Lines("stage", (index) => row(index), (index) => {
    const place = state.text.places[state.visible[index]];
    return selectedClass(place >= 0 ? [place] : []);
  });
  root.append(choice, status, lines.root);

  function load(name) {
    if (!loaded.has(name)) {
      const stage = contents.stages[names.indexOf(name)];
      loaded.set(name, stage.data ? inflated(stage.data).then((text) => unpacked(JSON.parse(text))) : Promise.resolve(unpacked([stage.problem, [], []])));
    }
    return loaded.get(name);
  }

  function unpacked([text, runs, folds]) {
    const all = text.split("\n");
    const places = new Int32Array(all.length).fill(-1);
    let at = 0;
    for (let k = 0; k < runs.length; k += 2) {
      places.fill(runs[k], at, at + runs[k + 1]);
      at += runs[k + 1];
    }
    return { lines: all, places, folds: new Map(folds), closed: new Set(all.length > FOLDED_FROM ? outermost(folds) : []) };
  }

  /** Returns the first lines of the blocks that are in no other block. */
  function outermost(folds) {
    let end = -1;
    return folds.filter(([first, last]) => {
      const isOuter = first > end;
      if (isOuter) end = last;
      return isOuter;
    }).map(([first]) => first);
  }

  async function choose(name) {
    state.stage = name;
    for (const button of choice.children) button.setAttribute("aria-selected", button.dataset.stage === name);
    const text = await load(name);
    if (state.stage !== name) return;
    state.text = text;
    state.at = 0;
    find();
    if (state.hits.length) openAround(state.hits[0]);
    refold(state.hits.length ? state.hits[0] : 0);
    describe();
  }

  /** Shows the lines that are in no closed block, from a line on if it is given. */
  function refold(line) {
    const { lines: all, folds, closed } = state.text;
    const visible = [];
    for (let k = 0; k < all.length; k += 1) {
      visible.push(k);
      if (closed.has(k)) k = folds.get(k);
    }
    state.visible = visible;
    lines.show(visible.length, line === undefined ? undefined : lowerBound(visible, line));
  }

  /** Finds the lines of the selected places. */
  function find() {
    const { places } = state.text;
    state.hits = [];
    if (!selection.pin.size) return;
    for (let k = 0; k < places.length; k += 1) if (selection.pin.has(places[k])) state.hits.push(k);
  }

  /** Finds the lines of the selected places, and shows one of them, if `scrolls`. */
  function seek(step, scrolls = true) {
    find();
    const { hits } = state;
    state.at = hits.length ? (state.at + step + hits.length) % hits.length : 0;
    if (hits.length && scrolls) reveal(hits[state.at]);
    describe();
  }

  /** Opens the blocks around a line; returns whether one was closed. */
  function openAround(line) {
    const { folds, closed } = state.text;
    const around = [...closed].filter((first) => first < line && line <= folds.get(first));
    for (const first of around) closed.delete(first);
    return around.length > 0;
  }

  /** Opens the blocks around a line and scrolls to it. */
  function reveal(line) {
    if (openAround(line)) refold(line);
    else lines.scrollTo(lowerBound(state.visible, line));
  }

  function describe() {
    const stage = contents.stages[names.indexOf(state.stage)];
    const parts = [];
    if (selection.pin.size) {
      const where = shortened(placeNames(selection.pin), 44);
      if (state.hits.length) {
        parts.push(`${where}: ${counted(state.hits.length, "line")} of this stage`,
          element("button", { "aria-label": "previous line", onclick: () => seek(-1) }, "‹"),
          `${state.at + 1}`,
          element("button", { "aria-label": "next line", onclick: () => seek(1) }, "›"));
      } else parts.push(`${where}: no line of this stage`);
      parts.push(element("button", { onclick: () => pin([], "stage") }, "clear"));
    } else {
      parts.push(counted(state.text.lines.length, "line"));
    }
    parts.push(element("span", { class: "grow" }));
    if (stage.omitted) parts.push(`${exact(stage.omitted)} more are in pullback dump --stage ${stage.name}`);
    if (state.text.folds.size) {
      parts.push(element("button", { onclick: () => foldAll(true) }, "fold"), element("button", { onclick: () => foldAll(false) }, "unfold"));
    }
    status.replaceChildren(...parts);
  }

  function foldAll(close) {
    state.text.closed = new Set(close ? outermost([...state.text.folds]) : []);
    refold();
  }

  function row(index) {
    const line = state.visible[index];
    const { lines: all, places, folds, closed } = state.text;
    const place = places[line];
    const canFold = folds.has(line);
    const isClosed = closed.has(line);
    const language = LANGUAGES[state.stage] || "ir";
    return element("div", {
      role: "listitem", "data-row": line, title: place >= 0 ? `${placeName(place)} ${contents.places[place].note}` : null,
      onmouseenter: () => hover(place >= 0 ? linePlaces(place) : []), onmouseleave: () => hover([]),
      onclick: () => place >= 0 && pin(linePlaces(place), "stage"),
    }, element("span", { class: "number" }, String(line + 1)),
    canFold ? element("span", {
      class: "fold", role: "button", "aria-label": isClosed ? "unfold" : "fold",
      onclick: (event) => { event.stopPropagation(); toggle(line); },
    }, isClosed ? "▸" : "▾") : element("span", { class: "fold" }),
    element("span", { class: "text" }, ...coloured(all[line], language),
      isClosed ? element("span", { class: "more", onclick: (event) => { event.stopPropagation(); toggle(line); } },
        `  … ${counted(folds.get(line) - line, "line")}`) : null));
  }

  function toggle(line) {
    const { closed } = state.text;
    if (!closed.delete(line)) closed.add(line);
    refold();
  }

  onSelect(({ from }) => {
    if (!state.text || root.hidden) return;
    if (from) {
      state.at = 0;
      seek(0, from !== "stage");
    }
    lines.restyle();
  });

  return {
    root,
    open() {
      if (state.stage === null && names.length) choose(names.includes(contents.stage) ? contents.stage : names[0]);
      else if (state.text) {
        lines.draw();
        seek(0);
      }
    },
    /** Loads the stages that are not shown yet, one after the other. */
    async prepare() {
      for (const name of names) await load(name);
    },
    /** Shows a stage at the first line with a text. */
    async show(name, words) {
      await choose(name);
      const line = state.text.lines.findIndex((text) => text.startsWith(words));
      if (line >= 0) {
        state.text.closed.delete(line);
        openAround(line);
        refold(line);
      }
    },
  };
}

/** Returns all places of the line of a place. */
function linePlaces(index) {
  const place = contents.places[index];
  return placesAt(place.source, place.line);
}

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
