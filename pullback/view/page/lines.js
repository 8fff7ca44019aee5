// A scrolled list of lines of equal height, of which only the visible ones are elements; and the colours of code.

const LINE = 20;
const AROUND = 8;
const LONGEST = 600;

class Lines {
  /** `row(index)` returns the element of a line, `classes(index)` its present classes. */
  constructor(label, row, classes) {
    this.row = row;
    this.classes = classes;
    this.count = 0;
    this.rows = new Map();
    this.layer = element("div", { class: "layer" });
    this.space = element("div", {});
    this.root = element("div", { class: "lines", role: "list", "aria-label": label, tabindex: "0" }, this.space, this.layer);
    this.root.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  /** Shows other lines, from the one at `index` if there is one. */
  show(count, index) {
    this.count = count;
    this.rows.clear();
    this.space.style.height = `${count * LINE}px`;
    if (index !== undefined) this.root.scrollTop = Math.max(0, index * LINE - this.root.clientHeight / 3);
    this.draw();
  }

  /** Adds the lines that have become visible, and removes the others. */
  draw() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / LINE) - AROUND);
    const last = Math.min(this.count, Math.ceil((this.root.scrollTop + this.root.clientHeight) / LINE) + AROUND);
    const rows = new Map();
    for (let k = first; k < last; k += 1) rows.set(k, this.rows.get(k) || this.row(k));
    this.rows = rows;
    this.layer.style.transform = `translateY(${first * LINE}px)`;
    this.layer.replaceChildren(...rows.values());
    this.restyle();
  }

  /** Gives the visible lines their present classes. */
  restyle() {
    for (const [k, row] of this.rows) {
      const classes = `line ${this.classes(k)}`.trim();
      if (row.className !== classes) row.className = classes;
    }
  }

  scrollTo(index) {
    const top = index * LINE;
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop + LINE || top > scrollTop + clientHeight - 3 * LINE) {
      this.root.scrollTop = Math.max(0, top - clientHeight / 3);
    }
    this.draw();
  }
}

/** Returns the class of a line by its places. */
function selectedClass(places) {
  if (!places.length) return "";
  if (places.some((place) => selection.pin.has(place))) return "linked pinned";
  return places.some((place) => selection.hover.has(place)) ? "linked marked" : "linked";
}

const TYPES = "&?(?:[fiu](?:8|16|32|64)|bf16|c64|c128|bool)(?:\\[[^\\]]*\\])?";
const PYTHON = "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|False|try|while|with|yield";
const CUDA = "__global__|__device__|__shared__|__restrict__|auto|bool|break|char|const|continue|double|else|extern|float|for|if|int|long|return|short|static|struct|template|typename|unsigned|using|void|while";
const LLVM = "define|declare|ret|br|switch|phi|load|store|call|label|internal|noalias|alloca|getelementptr|ptr|i1|i8|i16|i32|i64|double|float|half|void|entry";
const IR = "func|kernel|program|return|yield";
/** Groups in order: comment, string, value, type, keyword, number. */
const TOKENS = {
  ir: new RegExp(`(#.*$)|("(?:[^"\\\\]|\\\\.)*")|(%[\\w.]+)|(${TYPES})(?![\\w.])|\\b(${IR})\\b|(?<![\\w.%])(-?\\d[\\w.+]*)`, "g"),
  llvm: new RegExp(`(;.*$)|("(?:[^"\\\\]|\\\\.)*")|([%@][\\w.$-]+)|(<\\d+ x \\w+>)|\\b(${LLVM})\\b|(?<![\\w.%@])(-?\\d[\\w.+-]*)`, "g"),
  asm: /(#.*$)|("(?:[^"\\]|\\.)*")|(%?\b[xyz]mm\d+|%?\br[a-z0-9]+\b|%?\be[a-z]{2}\b)|(^\t\.\w+|^[.\w$]+:)|(^\t[a-z]\w*)|(?<![\w.])(-?\$?\d[\w.]*)/g,
  cuda: new RegExp(`(//.*$)|("(?:[^"\\\\]|\\\\.)*")|(\\bpb_\\w+)|(#\\w+)|\\b(${CUDA})\\b|(?<![\\w.])(\\d[\\w.]*)`, "g"),
  python: new RegExp(`(#.*$)|([rbfuRBFU]{0,2}(?:"(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*'))|(@[\\w.]+)|(?!)(x)|\\b(${PYTHON})\\b|(?<![\\w.])(\\d[\\w.]*)`, "g"),
};
const CLASSES = ["c", "s", "v", "t", "k", "n"];

/** Returns the nodes of a line of code, coloured, and cut if it is very long. */
function coloured(line, language) {
  const text = line.slice(0, LONGEST);
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS[language] || TOKENS.ir)) {
    const kind = CLASSES[match.slice(1).findIndex((group) => group !== undefined)];
    if (match.index > end) parts.push(text.slice(end, match.index));
    parts.push(element("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) parts.push(text.slice(end));
  if (line.length > LONGEST) {
    parts.push(element("span", { class: "more" }, ` … ${counted(line.length - LONGEST, "more character")}`));
  }
  return parts;
}

/** Returns for each line of Python the quotes of the string in which it begins, or "". */
function openStrings(lines) {
  const open = [];
  let quotes = "";
  for (const line of lines) {
    open.push(quotes);
    let at = 0;
    while (at < line.length) {
      if (quotes) {
        const end = line.indexOf(quotes, at);
        if (end < 0) break;
        at = end + 3;
        quotes = "";
      } else {
        const next = /#|"""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/.exec(line.slice(at));
        if (!next || next[0] === "#") break;
        at += next.index + next[0].length;
        if (next[0] === '"""' || next[0] === "'''") quotes = next[0];
      }
    }
  }
  return open;
}

/** Returns the nodes of a line of Python that begins in a string, if `open` is not empty. */
function colouredPython(text, open) {
  if (open) {
    const end = text.indexOf(open);
    if (end < 0) return [element("span", { class: "s" }, text)];
    return [element("span", { class: "s" }, text.slice(0, end + 3)), ...coloured(text.slice(end + 3), "python")];
  }
  const start = /^[^#"']*("""|''')/.exec(text);
  if (start && text.indexOf(start[1], start[0].length) < 0) {
    const at = start[0].length - 3;
    return [...coloured(text.slice(0, at), "python"), element("span", { class: "s" }, text.slice(at))];
  }
  return coloured(text, "python");
}
