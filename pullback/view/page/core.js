// The contents of the page, what is selected, and helpers that build elements. Texts reach the page as text nodes only.

const contents = JSON.parse(document.getElementById("contents").textContent);
const SVG = "http://www.w3.org/2000/svg";

/** Returns an element with attributes, a class for "class", and children; "on..." attributes are listeners. */
function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, key.startsWith("aria-") ? "true" : "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// numbers; a format is slow to make

const SHORT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function amount(value, unit) {
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, prefix] of steps) {
    if (value >= size) return `${digits(value / size)} ${prefix}${unit}`;
  }
  return `${digits(value)} ${unit}`;
}

/** Returns a number with three digits. */
function digits(value) {
  return SHORT.format(value.toPrecision(3));
}

/** Returns an integer with all its digits. */
function exact(value) {
  return WHOLE.format(value);
}

function bytes(value) {
  const steps = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  for (const [size, unit] of steps) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${value} B`;
}

function seconds(value) {
  if (value >= 1) return `${digits(value)} s`;
  if (value >= 1e-3) return `${digits(value * 1e3)} ms`;
  if (value >= 1e-6) return `${digits(value * 1e6)} µs`;
  return `${digits(value * 1e9)} ns`;
}

function percent(share) {
  return share >= 0.0995 ? `${Math.round(100 * share)} %` : `${(100 * share).toFixed(1)} %`;
}

function counted(count, word, words) {
  return `${exact(count)} ${count === 1 ? word : words || `${word}s`}`;
}

function shortened(text, most) {
  return text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 1))}…`;
}

// places

/** Place indices by "source:line". */
const placesOfLine = new Map();
contents.places.forEach((place, index) => {
  const key = `${place.source}:${place.line}`;
  if (!placesOfLine.has(key)) placesOfLine.set(key, []);
  placesOfLine.get(key).push(index);
});

function placesAt(source, line) {
  return placesOfLine.get(`${source}:${line}`) || [];
}

function placeName(index) {
  const place = contents.places[index];
  return place ? `${contents.sources[place.source].name}:${place.line}` : "";
}

/** Returns the names of places, each line once, consecutive lines as a range. */
function placeNames(indices) {
  const bySource = new Map();
  for (const index of indices) {
    const place = contents.places[index];
    if (!place) continue;
    if (!bySource.has(place.source)) bySource.set(place.source, new Set());
    bySource.get(place.source).add(place.line);
  }
  return [...bySource].map(([source, lines]) => {
    const runs = [];
    for (const line of [...lines].sort((a, b) => a - b)) {
      const last = runs[runs.length - 1];
      if (last && line === last[1] + 1) last[1] = line;
      else runs.push([line, line]);
    }
    return `${contents.sources[source].name}:${runs.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(", ")}`;
  }).join("; ");
}

function lineText(index) {
  const place = contents.places[index];
  return place ? (contents.sources[place.source].lines[place.line - 1] || "").trim() : "";
}

/** Returns the innermost function around a place. */
function functionOf(index) {
  const place = contents.places[index];
  let name = "";
  for (const [candidate, first, last] of contents.sources[place.source].functions) {
    if (candidate !== "lambda" && first <= place.line && place.line <= last) name = candidate;
  }
  return name || contents.sources[place.source].name;
}

// selection

const selection = { hover: new Set(), pin: new Set(), item: null, listeners: [] };

function onSelect(listener) {
  selection.listeners.push(listener);
}

function notify(change) {
  for (const listener of selection.listeners) listener(change);
}

function hover(places) {
  if (!places.length && !selection.hover.size) return;
  selection.hover = new Set(places);
  notify({ hover: true });
}

/** Selects places. `from`: the part of the page in which they were chosen, which is not scrolled. `item`: what else is chosen. */
function pin(places, from, item) {
  selection.pin = new Set(places);
  selection.hover = new Set();
  selection.item = item || null;
  notify({ from });
}

// texts of stages

async function inflated(text) {
  const binary = atob(text);
  const data = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k += 1) data[k] = binary.charCodeAt(k);
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
