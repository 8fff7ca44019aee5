// The panel of kernels: a graph from top to bottom in the order of the program. The text above a kernel says for each value that
// it reads from another one how large it is, what it took to compute, and why the two are not fused.

const WINDOW = 30;
const BOX = 46;
const LABEL = 20;
const LANE = 12;
const NARROW = 520;
const MONO = 7.3;
const MOST_LANES = 6;

function kernelsPanel(showStage) {
  const root = element("div", { class: "panel" });
  const state = { parent: -1, start: 0 };
  const path = element("div", { class: "bar" });
  const canvas = element("div", { class: "scroll" });
  const details = element("div", { class: "details" });
  root.append(path, canvas, details);
  const edgesInto = new Map(contents.nodes.map((_, k) => [k, []]));
  contents.edges.forEach((edge, index) => edgesInto.get(edge.target).push({ ...edge, index }));
  let width = 0;
  new ResizeObserver(() => {
    if (!root.hidden && canvas.clientWidth !== width) draw();
  }).observe(canvas);

  function inside(parent) {
    return contents.nodes.map((_, k) => k).filter((k) => contents.nodes[k].parent === parent);
  }

  function enter(parent) {
    state.parent = parent;
    state.start = 0;
    draw();
  }

  function ancestors() {
    const chain = [];
    for (let k = state.parent; k >= 0; k = contents.nodes[k].parent) chain.unshift(k);
    return chain;
  }

  function draw() {
    width = canvas.clientWidth;
    const all = inside(state.parent);
    const shown = all.slice(state.start, state.start + WINDOW);
    drawPath(all, shown);
    const row = new Map(all.map((node, k) => [node, k]));
    const edges = shown.map((node) => edgesInto.get(node).filter((edge) => row.has(edge.source)));
    const free = [];
    const left = 8 + LANE * Math.min(MOST_LANES, Math.max(...edges.flat().map((edge) => row.get(edge.target) - row.get(edge.source) - 1), 0) + 1);
    const boxWidth = Math.max(width - 32 - left, 180);
    const label = boxWidth < NARROW ? 2 * LABEL - 4 : LABEL;
    const parts = [];
    const tops = new Map();
    let y = 4;
    shown.forEach((node, k) => {
      const labels = edges[k].map((edge, n) => ({ edge, y: y + (k ? 8 : 0) + n * label }));
      y += labels.length * label + (k ? 14 : 0);
      for (const { edge, y: top } of labels) parts.push(drawEdge(edge, top, y, node));
      tops.set(node, y);
      parts.push(drawNode(node, y));
      y += BOX;
    });

    function lane(from, to) {
      let k = free.findIndex((end) => end <= from);
      if (k < 0) k = free.length < MOST_LANES ? free.length : free.indexOf(Math.min(...free));
      free[k] = to;
      return left - 8 - LANE * (k + 1) + 4;
    }

    function drawEdge(edge, top, boxTop, node) {
      const source = row.get(edge.source);
      const isAdjacent = row.get(node) === source + 1 && tops.has(edge.source);
      const middle = top + LABEL / 2;
      let wire = `M ${left + 16} ${top - 8} V ${boxTop}`;
      const begin = left + 28;
      if (!isAdjacent) {
        const from = tops.has(edge.source) ? tops.get(edge.source) + BOX / 2 : 0;
        const x = lane(from, middle);
        wire = `M ${left} ${from} H ${x} V ${middle} H ${left + 16} V ${boxTop}`;
      }
      const name = isAdjacent ? "" : `from ${contents.nodes[edge.source].name} `;
      const words = `${name}%${edge.value}  ${bytes(edge.bytes)} · ${amount(edge.flops, "flop")}`;
      const room = Math.floor((boxWidth - 46 - words.length * MONO) / 6.4);
      return svg("g", { class: "edge", "data-edge": edge.index, onclick: () => describeEdge(edge) },
      svg("path", { class: "wire", d: `${wire} m -3.5 -6 l 3.5 6 l 3.5 -6` }),
      svg("rect", { class: "ground", x: begin - 6, y: top + 1, width: boxWidth - 24, height: label - 2, rx: 3 }),
      svg("text", { class: "mono", x: begin, y: top + 14 }, words),
      label === LABEL ? svg("text", { class: "muted", x: begin + words.length * MONO + 12, y: top + 14 }, shortened(edge.reason, room))
        : svg("text", { class: "muted", x: begin, y: top + 30 }, shortened(edge.reason, Math.floor((boxWidth - 34) / 6.4))));
    }

    function drawNode(index, top) {
      const node = contents.nodes[index];
      const chars = Math.floor((boxWidth - 24) / 6.7);
      const title = node.kind === "kernel" ? node.name : node.kind;
      const lineNames = placeNames(node.places);
      return svg("g", {
        class: "node", "data-node": index, onclick: () => describeNode(index),
        onmouseenter: () => hover(node.places), onmouseleave: () => hover([]),
      }, svg("rect", { x: left, y: top, width: boxWidth, height: BOX, rx: 5 }),
      svg("text", { x: left + 12, y: top + 19 }, svg("tspan", { "font-weight": 600 }, title),
        svg("tspan", { dx: 10, style: "fill:var(--muted)" }, shortened(`${lineNames}  ${node.ops.join(", ")}`, chars - title.length - 3))),
      svg("text", { class: "muted", x: left + 12, y: top + 37 }, shortened(workText(node), chars)));
    }

    canvas.replaceChildren(element("p", { class: "note" }, "Between two kernels: a value that the upper one stores and the lower one reads, its bytes, the flops that computed it, and why the two are not fused."),
      svg("svg", { width: left + boxWidth + 2, height: y + 6, role: "img", "aria-label": "graph of kernels" }, ...parts));
    restyle();
    if (!all.length) canvas.replaceChildren(element("p", { class: "note" }, "Nothing is computed: there are no kernels."));
  }

  /** Marks the kernels of the selected lines, and what is chosen. */
  function restyle() {
    for (const node of canvas.querySelectorAll("[data-node]")) {
      const { places } = contents.nodes[node.dataset.node];
      const isChosen = selection.item === `node ${node.dataset.node}`;
      const isMarked = places.some((place) => selection.pin.has(place));
      node.setAttribute("class", isChosen ? "node pinned" : isMarked && !selection.item ? "node marked" : "node");
    }
    for (const edge of canvas.querySelectorAll("[data-edge]")) {
      edge.setAttribute("class", selection.item === `edge ${edge.dataset.edge}` ? "edge pinned" : "edge");
    }
  }

  onSelect(({ from }) => {
    if (!root.hidden && from) restyle();
  });

  function drawPath(all, shown) {
    const parts = [element("button", { "aria-current": state.parent < 0, onclick: () => enter(-1) }, "program")];
    for (const k of ancestors()) {
      parts.push("›", element("button", { "aria-current": k === state.parent, onclick: () => enter(k) }, nodeTitle(k)));
    }
    parts.push(element("span", { class: "grow" }));
    if (shown.length < all.length) {
      parts.push(element("button", { "aria-label": "previous kernels", onclick: () => turn(-WINDOW) }, "‹"),
        `${state.start + 1}–${state.start + shown.length} of ${all.length}`,
        element("button", { "aria-label": "next kernels", onclick: () => turn(WINDOW) }, "›"));
    } else parts.push(counted(all.length, "step"));
    path.replaceChildren(...parts);

    function turn(step) {
      const start = state.start + step;
      if (start >= 0 && start < all.length) {
        state.start = start;
        canvas.scrollTop = 0;
        draw();
      }
    }
  }

  function describeEdge(edge) {
    const [a, b] = [edge.source, edge.target].map((k) => contents.nodes[k]);
    pin([...new Set([...a.places, ...b.places])], "kernels", `edge ${edge.index}`);
    details.replaceChildren(
      element("p", {}, element("b", {}, `${a.name} and ${b.name} are not fused: `), edge.reason || "no reason is recorded"),
      element("p", {}, element("code", {}, `%${edge.value}: ${edge.type}`),
        ` is ${exact(edge.bytes)} bytes, computed by ${a.name} with ${exact(edge.flops)} flops and read by ${b.name}.`));
  }

  function describeNode(index) {
    const node = contents.nodes[index];
    pin(node.places, "kernels", `node ${index}`);
    const loops = Object.entries(node.loops).map(([how, count]) => `${count} ${LOOPS[how]}`).join(", ");
    const parts = [
      element("p", {}, element("b", {}, `${nodeTitle(index)}: `), node.ops.join(", ")),
      element("p", {}, workText(node)),
      loops ? element("p", {}, `Its loops: ${loops}.`) : null,
    ];
    if (node.kind === "kernel") {
      const shown = ["lower", "schedule"].filter((name) => contents.stages.some((stage) => stage.name === name));
      parts.push(element("p", {}, ...shown.flatMap((name, k) => [k ? " · " : "", element("button", {
        onclick: () => showStage(name, `kernel ${node.name}(`),
      }, `its text in ${name}`)])));
    }
    const children = inside(index);
    if (children.length) {
      parts.push(element("p", {}, element("button", { "data-enter": index, onclick: () => enter(index) }, `show ${counted(children.length, "step")} inside`)));
    }
    details.replaceChildren(...parts.filter((part) => part));
  }

  return {
    root,
    open() {
      if (canvas.clientWidth !== width) draw();
    },
    /** Shows a node, in the loop or branch that has it. */
    show(index) {
      state.parent = contents.nodes[index].parent;
      state.start = Math.floor(inside(state.parent).indexOf(index) / WINDOW) * WINDOW;
      draw();
      describeNode(index);
      const drawn = canvas.querySelector(`[data-node="${index}"]`);
      if (drawn) drawn.scrollIntoView({ block: "center" });
    },
  };
}

const LOOPS = { threads: "over threads", vector: "vectorised", serial: "serial" };

function nodeTitle(index) {
  const node = contents.nodes[index];
  const at = node.places.length ? ` (${placeName(node.places[0])})` : "";
  return node.kind === "kernel" ? `${node.name}${at}` : `${node.kind}${at}`;
}

function workText(node) {
  const more = node.is_exact ? "" : "+";
  const parts = [`${amount(node.flops, "flop")}${more}`];
  if (node.functions) parts.push(`${node.functions < 1e5 ? exact(node.functions) : amount(node.functions, "").trim()} functions`);
  parts.push(`reads ${bytes(node.bytes_read)}${more}`, `writes ${bytes(node.bytes_written)}${more}`);
  if (node.launches !== 1) parts.push(`${exact(node.launches)}${more} launches`);
  if (node.seconds !== null) {
    parts.push(seconds(node.seconds));
    if (node.share) parts.push(`${percent(node.share)} of the ${node.limit} limit`);
  }
  return parts.join(" · ");
}
