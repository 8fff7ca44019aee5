// Puts the page together: the head, the answers, the source and the panels.

function start() {
  const device = contents.device ? `on ${contents.device}` : "";
  const size = contents.operations ? counted(contents.operations, "operation") : "";
  document.getElementById("head").append(
    element("h1", {}, contents.title),
    element("p", {}, [shortened(contents.arguments, 240) || "no arguments", device, size].filter((text) => text).join(" · ")));
  sourcePane();
  const root = document.getElementById("panels");
  if (contents.error) {
    root.append(element("div", { class: "scroll" }, element("div", { class: "problem", role: "alert" },
      element("p", {}, element("b", {}, "This call could not be compiled.")),
      element("pre", {}, contents.error.text))));
    return;
  }
  const panels = new Map();
  const tabs = element("div", { class: "bar tabs", role: "tablist", "aria-label": "panel" });
  const stages = stagesPanel();
  const kernels = kernelsPanel((name, words) => { open("stages"); stages.show(name, words); });
  const made = [
    ["stages", "Stages", stages], ["kernels", "Kernels", kernels], ["memory", "Memory", memoryPanel()], ["time", "Time", timePanel()],
    ["gradient", "Gradient", gradientPanel()], ["loops", "Loops", loopsPanel((index) => { open("kernels"); kernels.show(index); })],
  ];
  root.append(tabs);
  for (const [name, title, panel] of made) {
    panels.set(name, panel);
    panel.root.hidden = true;
    tabs.append(element("button", { role: "tab", "data-panel": name, onclick: () => open(name) }, title));
    root.append(panel.root);
  }

  function open(name) {
    for (const [other, panel] of panels) panel.root.hidden = other !== name;
    for (const button of tabs.children) button.setAttribute("aria-selected", button.dataset.panel === name);
    panels.get(name).open();
  }

  answers(open);
  open("stages");
  setTimeout(() => stages.prepare().then(() => document.documentElement.setAttribute("data-ready", "")), 50);
}

/** Adds the buttons that answer what is most often asked, and open the panel that shows more. */
function answers(open) {
  const root = document.getElementById("answers");
  const add = (name, question, answer, action) => root.append(element("button", {
    "data-answer": name, title: answer, onclick: () => { open(name); if (action) action(); },
  }, element("span", {}, question), element("b", {}, answer)));

  const [top] = costliest();
  add("time", "Line that costs most", top ? `${placeName(top.at)} · ${percent(top.total / contents.time.seconds)} of a call` : "not timed",
    top ? () => pin(linePlaces(top.at), "answers") : null);
  const kernels = contents.nodes.filter((node) => node.kind === "kernel").length;
  add("kernels", "Kernels, and why they are not fused", `${counted(kernels, "kernel")}, ${counted(contents.edges.length, "boundary", "boundaries")}`);
  const gradient = contents.gradient;
  const kept = gradient ? gradient.rows.filter((r) => r.kept === "memory") : [];
  add("gradient", "What the gradient keeps", gradient ? `${bytes(kept.reduce((sum, r) => sum + r.bytes, 0))} in memory, ${counted(kept.length, "value")}` : "no gradient is taken");
  const count = (word) => contents.statements.filter((s) => s.kind === "loop" && s.how.startsWith(word)).length;
  const loops = contents.statements.filter((s) => s.kind === "loop").length;
  add("loops", "Loops", loops ? `${count("rolled")} rolled, ${count("unrolled")} unrolled` : "none");
}

start();
