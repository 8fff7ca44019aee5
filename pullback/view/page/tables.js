// Tables, and the panels that are tables: what the gradient keeps, and loops and branches.

/** Returns a table, and a function that marks the chosen rows. Rows have `cells`, `choose()` and `isChosen()`. */
function tableOf(header, rows, { right = [], code = [] } = {}) {
  const kind = (k) => (right.includes(k) ? "right" : code.includes(k) ? "code" : null);
  const drawn = rows.map((row) => element("tr", {
    class: "linked", onclick: row.choose, tabindex: "0", onkeydown: (event) => event.key === "Enter" && row.choose(),
  }, ...row.cells.map((cell, k) => element("td", { class: kind(k) }, cell))));
  const root = element("table", {},
    element("thead", {}, element("tr", {}, ...header.map((text, k) => element("th", { class: right.includes(k) ? "right" : null, scope: "col" }, text)))),
    element("tbody", {}, ...drawn));
  const restyle = () => rows.forEach((row, k) => drawn[k].setAttribute("class", row.isChosen() ? "linked pinned" : "linked"));
  restyle();
  onSelect(({ from }) => from && restyle());
  return root;
}

/** Returns the first rows of a table that may be long, with a note on the others. */
function firstRows(header, rows, options) {
  const table = tableOf(header, rows.slice(0, MOST_ROWS), options);
  const more = rows.length - MOST_ROWS;
  return more > 0 ? [table, element("p", { class: "note" }, `and ${exact(more)} more`)] : [table];
}

const MOST_LINKS = 6;
const KEPT = { memory: "in memory", kernel: "within a kernel", recomputed: "computed again", input: "by the caller" };

function gradientPanel() {
  const root = element("div", { class: "panel" });
  const scroll = element("div", { class: "scroll" });
  root.append(scroll);
  const gradient = contents.gradient;
  if (!gradient) {
    scroll.append(element("p", {}, "No gradient is taken, so nothing is kept for one. With --grad, or for pb.grad(f), this panel lists what the backward part reads of the forward part."));
    return { root, open() {} };
  }
  const rows = gradient.rows.map((r) => {
    const places = r.at >= 0 ? linePlaces(r.at) : r.readers;
    const readers = [...new Set(r.readers.map((p) => `${contents.places[p].note} ${placeName(p)}`.trim()))].join(", ");
    return {
      cells: [`%${r.name}`, r.type, bytes(r.bytes), KEPT[r.kept] + (r.why ? `: ${r.why}` : ""), `${r.op} ${placeName(r.at)}`.trim(), readers],
      isChosen: () => selection.item === `residual ${r.name}`,
      choose: () => pin(places, "gradient", `residual ${r.name}`),
    };
  });
  scroll.append(element("p", {}, `${gradient.headline.replace(/^.*?: /, "")}.`, gradient.algorithm ? element("span", { class: "note" }, ` Chosen by ${gradient.algorithm}.`) : ""),
    ...firstRows(["value", "type", "bytes", "kept", "computed by", "read by"], rows, { right: [2], code: [0, 1] }));
  return { root, open() {} };
}

function loopsPanel(showNode) {
  const root = element("div", { class: "panel" });
  const scroll = element("div", { class: "scroll" });
  root.append(scroll);
  if (contents.not_rolled) {
    scroll.append(element("p", {}, `No statement is compiled as such, and loops are unrolled, since one cannot be: ${contents.not_rolled}`));
  }
  if (!contents.statements.length) {
    scroll.append(element("p", { class: "note" }, "The functions that were traced have no branches, loops or checks."));
    return { root, open() {} };
  }
  const rows = contents.statements.map((s, k) => ({
    cells: [placeName(s.at), s.text, how(s), where(s)],
    isChosen: () => selection.item === `statement ${k}`,
    choose: () => pin(s.at >= 0 ? bodyPlaces(s) : [], "loops", `statement ${k}`),
  }));
  scroll.append(...firstRows(["line", "statement", "how it is compiled", "where it runs"], rows, { code: [1] }));
  return { root, open() {} };

  function how(statement) {
    const [word, ...rest] = statement.how.split(":");
    if (word !== "rolled" && word !== "unrolled") return statement.how;
    return element("span", {}, element("span", { class: `pill ${word}` }, word), rest.length ? ` ${rest.join(":").trim()}` : "");
  }

  /** Returns links to the nodes of a statement, with how the loops of their kernels run. */
  function where(statement) {
    const inside = new Map();
    for (const index of statement.nodes.flatMap((node) => [node, ...descendants(node)])) {
      const node = contents.nodes[index];
      const loops = Object.keys(node.loops).filter((name) => name !== "serial").map((name) => LOOPS[name]).join(", ");
      const title = node.kind === "kernel" ? `kernel ${node.name}` : nodeTitle(index);
      const words = node.kind === "kernel" ? loops : `of the program, ${exact(node.launches)}${node.is_exact ? "" : "+"} launches in it`;
      if (!inside.has(title + words)) inside.set(title + words, { index, title, words });
    }
    const shown = [...inside.values()].slice(0, MOST_LINKS).map(({ index, title, words }) => element("div", {}, element("button", {
      class: "link", onclick: (event) => { event.stopPropagation(); showNode(index); },
    }, title), words ? ` ${words}` : ""));
    if (inside.size > MOST_LINKS) shown.push(element("div", { class: "note" }, `and ${inside.size - MOST_LINKS} more`));
    return element("div", {}, ...(shown.length ? shown : ["in no kernel"]));
  }
}

function descendants(index) {
  return contents.nodes.flatMap((node, k) => (node.parent === index ? [k, ...descendants(k)] : []));
}

/** Returns the places of the lines of a statement and its body. */
function bodyPlaces(statement) {
  const first = contents.places[statement.at];
  return contents.places.flatMap((place, k) => (place.source === first.source && first.line <= place.line && place.line <= statement.last ? [k] : []));
}
