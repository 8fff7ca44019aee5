// The panels of memory and time.

const MOST_BLOCKS = 400;
const MOST_ROWS = 60;
const MANY = 60;
const KINDS = {
  residual: "residual: kept for the backward part", cotangent: "cotangent: of the backward part", value: "value",
  scratch: "scratch: of one kernel",
};

/** Returns a function that draws a panel if its width is another one than before. */
function redrawing(root, scroll, draw) {
  let width = -1;
  const redraw = () => {
    if (!root.hidden && scroll.clientWidth !== width) {
      width = scroll.clientWidth;
      draw(width - 32);
    }
  };
  new ResizeObserver(redraw).observe(scroll);
  return redraw;
}

function memoryPanel() {
  const root = element("div", { class: "panel" });
  const scroll = element("div", { class: "scroll" });
  root.append(scroll);
  const memory = contents.memory;
  const chart = element("div", {});
  const timed = memory.buffers.filter((b) => b.first !== null && b.offset !== null);
  const steps = Math.max(memory.steps.length, ...timed.map((b) => b.last + 1), 1);

  function draw(width) {
    if (!timed.length) {
      chart.replaceChildren(element("p", { class: "note" }, "No temporary is in memory: values stay in registers, or are results."));
      return;
    }
    const left = 64;
    const height = timed.length > MANY ? 480 : 240;
    const hosts = [...new Set(timed.map((b) => b.within).filter((name) => name))];
    const sizes = hosts.map((name) => {
      const host = memory.buffers.find((b) => b.name === name && b.kind === "result");
      return Math.max(host ? host.bytes : 0, ...timed.filter((b) => b.within === name).map((b) => b.offset + b.bytes));
    });
    const regions = [["the arena", "", memory.arena_bytes], ...hosts.map((name, k) => [`result %${name}`, name, sizes[k]])];
    const total = regions.reduce((sum, [, , size]) => sum + size, 0) || 1;
    const scale = height / total;
    const x = (step) => left + (step / steps) * (width - left - 4);
    const parts = [];
    const bases = new Map();
    let base = 0;
    const live = liveBytes();
    const peak = Math.max(...live, 1);
    const top = 64;
    const path = live.map((value, k) => `L ${x(k).toFixed(1)} ${(top - 12 - 44 * (value / peak)).toFixed(1)} H ${x(k + 1).toFixed(1)}`).join(" ");
    parts.push(svg("path", { d: `M ${left} ${top - 12} ${path} V ${top - 12} Z`, fill: "var(--value)", opacity: ".35" }),
      svg("text", { class: "muted", x: 0, y: 20 }, bytes(peak)), svg("text", { class: "muted", x: 0, y: 36 }, "alive"));
    for (const [title, name, size] of regions) {
      bases.set(name, base);
      const y = top + (total - base - size) * scale;
      parts.push(svg("rect", { x: left, y, width: width - left - 4, height: Math.max(size * scale - 1, 0), fill: "var(--raised)" }),
        svg("text", { class: "muted", x: 0, y: y + Math.min(size * scale, 14) }, shortened(bytes(size), 10)),
        size * scale > 30 ? svg("text", { class: "muted", x: 0, y: y + 29 }, shortened(name ? `in %${name}` : "arena", 10)) : "");
      base += size;
    }
    const largest = timed.length > MOST_BLOCKS ? [...timed].sort((a, b) => area(b) - area(a)).slice(0, MOST_BLOCKS) : timed;
    for (const b of largest) {
      const from = x(b.first);
      const to = x(b.last + 1);
      const y = top + (total - bases.get(b.within) - b.offset - b.bytes) * scale;
      const tall = Math.max(b.bytes * scale, 1);
      const label = `%${b.name}`;
      parts.push(svg("g", { class: "block", "data-buffer": b.name, onclick: () => choose(b) }, svg("title", {}, `${label}: ${b.type}, ${bytes(b.bytes)}, ${b.kind}, steps ${b.first} to ${b.last} ${b.op} ${placeName(b.at)}`),
      svg("rect", { class: tall > 5 ? "tall" : null, x: from, y, width: Math.max(to - from, 1), height: tall, fill: `var(--${b.kind})` }),
      tall >= 13 && to - from > 20 ? svg("text", { x: from + 5, y: y + tall / 2 + 4 }, shortened(label, Math.floor((to - from - 6) / 7))) : ""));
    }
    const bottom = top + height + 14;
    const every = Math.max(1, Math.ceil(steps / Math.max((width - left) / 46, 1)));
    for (let k = 0; k < memory.steps.length; k += every) {
      parts.push(svg("text", { class: "muted", x: x(k) + 2, y: bottom }, contents.nodes[memory.steps[k]].name));
    }
    chart.replaceChildren(
      element("p", { class: "note" }, ...Object.entries(KINDS).filter(([kind]) => timed.some((b) => b.kind === kind))
        .map(([kind, text]) => element("span", { class: "key" }, element("span", { class: "swatch", style: `background:var(--${kind})` }), text))),
      svg("svg", { width, height: bottom + 8, role: "img", "aria-label": "live memory by step" }, ...parts),
      element("p", { class: "note" }, largest.length < timed.length ? `The ${exact(MOST_BLOCKS)} largest of ${exact(timed.length)} temporaries are drawn.` : ""));
    restyle();
  }

  function restyle() {
    for (const block of chart.querySelectorAll("[data-buffer]")) {
      block.setAttribute("class", selection.item === `buffer ${block.dataset.buffer}` ? "block pinned" : "block");
    }
  }

  function area(b) {
    return b.bytes * (b.last - b.first + 1);
  }

  function liveBytes() {
    const change = new Float64Array(steps + 1);
    for (const b of timed) {
      change[b.first] += b.bytes;
      change[b.last + 1] -= b.bytes;
    }
    let now = 0;
    return [...change.subarray(0, steps)].map((value) => (now += value));
  }

  function choose(b) {
    pin(b.at >= 0 ? linePlaces(b.at) : [], "memory", `buffer ${b.name}`);
  }

  const redraw = redrawing(root, scroll, draw);
  onSelect(({ from }) => from && restyle());
  const rows = [...memory.buffers].sort((a, b) => b.bytes - a.bytes).map((b) => ({
    cells: [`%${b.name}`, b.type, bytes(b.bytes), b.kind, `${b.op} ${placeName(b.at)}`.trim(), b.first === null ? "" : `steps ${b.first}–${b.last}`],
    isChosen: () => selection.item === `buffer ${b.name}`,
    choose: () => choose(b),
  }));
  scroll.append(element("p", {}, `${memory.headline.replace(/^.*?: /, "").replace(/^p/, "P")}. The arena has ${exact(memory.arena_bytes)} bytes; without sharing, temporaries would take ${exact(memory.unshared_bytes)}.`), chart,
    ...firstRows(["buffer", "type", "bytes", "kind", "computed by", "alive"], rows, { right: [2], code: [0, 1] }));
  return { root, open: redraw };
}

// time

const LEVEL = 24;

function timePanel() {
  const root = element("div", { class: "panel" });
  const scroll = element("div", { class: "scroll" });
  root.append(scroll);
  const time = contents.time;
  if (!time.frames.length) {
    scroll.append(element("p", {}, `There are no times: ${time.note}.`));
    return { root, open() {} };
  }
  const chart = element("div", {});
  const tree = flameTree();
  let zoomed = tree;
  let blocks = [];

  /** Returns the tree: the call, its parts, their functions, their lines, the kernels of each line. */
  function flameTree() {
    const top = { name: contents.title, seconds: 0, children: new Map(), places: [], kind: "call", up: null };
    for (const frame of time.frames) {
      const place = contents.places[frame.at];
      const levels = place ? [
        [place.part, place.part, []],
        [functionOf(frame.at), place.part, []],
        [placeName(frame.at), place.part, linePlaces(frame.at)],
        [frame.name, place.part, linePlaces(frame.at)],
      ] : [[frame.name, "outside", []]];
      let at = top;
      at.seconds += frame.seconds;
      for (const [name, kind, places] of levels) {
        if (!at.children.has(name)) at.children.set(name, { name, seconds: 0, children: new Map(), places, kind, up: at });
        at = at.children.get(name);
        at.seconds += frame.seconds;
      }
    }
    return top;
  }

  function draw(width) {
    blocks = [];
    const parts = [];
    const chain = [];
    for (let at = zoomed.up; at; at = at.up) chain.unshift(at);
    chain.forEach((item, k) => parts.push(block(item, 0, width, k)));
    let depth = chain.length;
    const place = (item, from, to, level) => {
      depth = Math.max(depth, level + 1);
      parts.push(block(item, from, to, level));
      let x = from;
      for (const child of [...item.children.values()].sort((a, b) => b.seconds - a.seconds)) {
        const end = x + ((to - from) * child.seconds) / (item.seconds || 1);
        if (end - x >= 1) place(child, x, end, level + 1);
        x = end;
      }
    };
    place(zoomed, 0, width, chain.length);
    chart.replaceChildren(svg("svg", { width, height: Math.max(depth, 5) * LEVEL + 8, role: "img", "aria-label": "flame graph" }, ...parts));
    restyle();
  }

  function block(item, from, to, level) {
    const text = item.name;
    const share = `${seconds(item.seconds)}, ${percent(item.seconds / tree.seconds)}`;
    const source = item.places.length ? lineText(item.places[0]) : "";
    const room = Math.floor((to - from - 8) / 6.8);
    const words = room > text.length + share.length + 3 ? `${text}  ${share}` : text;
    const fill = item.kind === "call" ? "outside" : item.kind;
    const group = svg("g", { "data-frame": item.name, onclick: () => choose(item) },
      svg("title", {}, `${text}: ${share}\n${source}`),
      svg("rect", { x: from, y: level * LEVEL, width: Math.max(to - from, 1), height: LEVEL - 1, rx: 2, fill: `var(--${fill})` }),
      room > 2 ? svg("text", { x: from + 5, y: level * LEVEL + 16 }, shortened(words, room)) : "");
    blocks.push([group, item]);
    return group;
  }

  function choose(item) {
    if (item.children.size && !item.places.length && item !== zoomed) {
      zoomed = item;
      draw(scroll.clientWidth - 32);
    }
    if (item.places.length) pin(item.places, "time");
  }

  function restyle() {
    for (const [group, item] of blocks) {
      const isChosen = item.places.length > 0 && item.places.some((place) => selection.pin.has(place));
      group.setAttribute("class", isChosen ? "block pinned" : "block");
    }
  }

  const redraw = redrawing(root, scroll, draw);
  onSelect(({ from }) => from && restyle());
  const rows = costliest().map((r) => ({
    cells: [placeName(r.at), seconds(r.total), percent(r.total / time.seconds), r.forward ? seconds(r.forward) : "", r.backward ? seconds(r.backward) : "", lineText(r.at)],
    isChosen: () => selection.pin.has(r.at),
    choose: () => pin(linePlaces(r.at), "time"),
  }));
  const ordinary = time.ordinary_seconds === null ? "" : ` An ordinary call takes ${seconds(time.ordinary_seconds)}.`;
  scroll.append(element("p", {}, `A call takes ${seconds(time.seconds)}.${ordinary} `, element("span", { class: "note" }, `${time.note}.`)), chart,
    ...firstRows(["line", "time", "", "forward", "backward", "source"], rows, { right: [1, 2, 3, 4], code: [5] }));
  return { root, open: redraw };
}

/** Returns the lines by their time, the longest first. */
function costliest() {
  const rows = [...lineTimes()].map(([key, time]) => ({ ...time, at: placesOfLine.get(key)[0] }));
  return rows.sort((a, b) => b.total - a.total);
}
