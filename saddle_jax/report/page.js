// What the page shows: the runs' numbers from its JSON element, as charts and as CSV.
(() => {
  const { html, svg, colour, dash, csvButton, panel, least, most, hidden, redraw } = charts;
  const data = JSON.parse(document.getElementById("data").textContent);
  const X = {
    epoch: "epoch",
    step: "step",
    bytes_sent_per_agent: "bytes sent per agent",
    paper_bytes_sent_per_agent: "bytes sent per agent, as the paper counts",
    backward_passes: "backward passes per agent",
    simulated_seconds: "simulated seconds",
  };
  let against = "epoch";

  // ---- Controls and legend
  const runsWith = (key) => data.runs.some((run) => run.columns[key]);
  const chooser = html("select", { id: "x-axis" });
  for (const [key, name] of Object.entries(X))
    if (runsWith(key)) chooser.append(html("option", { value: key }, name));
  chooser.addEventListener("change", () => {
    against = chooser.value;
    redraw();
  });
  const legend = html("div", { class: "legend", role: "group", "aria-label": "Runs: press to hide or show" });
  data.runs.forEach((run, number) => {
    const mark = svg(
      "svg",
      { viewBox: "0 0 24 8", "aria-hidden": "true" },
      svg("path", { class: "curve", d: "M0 4H24", "stroke-dasharray": dash(number) }),
    );
    mark.style.setProperty("--run", colour(number));
    const button = html("button", { type: "button", "aria-pressed": "true" }, mark, run.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(number)) hidden.add(number);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      redraw();
    });
    legend.append(button);
  });
  function everything() {
    // all lines of all runs, lists spread over columns named after the layers
    const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.columns)))];
    const widths = names.map((name) =>
      most(
        data.runs.flatMap((run) => (run.columns[name] || []).map((v) => (Array.isArray(v) ? v.length : 0))),
      ),
    );
    const label = (name, k) => `${name}[${name.endsWith("_by_layer") ? (data.runs[0].layers[k] ?? k) : k}]`;
    const rows = [
      [
        "run",
        ...names.flatMap((name, n) =>
          widths[n] > 0 ? Array.from({ length: widths[n] }, (_, k) => label(name, k)) : [name],
        ),
      ],
    ];
    for (const run of data.runs) {
      for (let line = 0; line < (run.columns.step || []).length; line++) {
        rows.push([
          run.name,
          ...names.flatMap((name, n) => {
            const value = run.columns[name] ? run.columns[name][line] : null;
            return widths[n] > 0
              ? Array.from({ length: widths[n] }, (_, k) => (value ? value[k] : null))
              : [value];
          }),
        ]);
      }
    }
    return rows;
  }
  document
    .getElementById("controls")
    .append(
      html("label", { for: "x-axis" }, "against "),
      chooser,
      legend,
      html("span", { class: "tools" }, "all metrics ", csvButton("metrics", everything)),
    );

  // ---- Curves of the metrics
  for (const { key, title, log, factor } of data.panels) {
    panel(document.getElementById("panels"), {
      id: key,
      title,
      log,
      factor,
      xName: () => X[against],
      series: () =>
        data.runs.flatMap((run, number) => {
          const [xs, ys] = [run.columns[against], run.columns[key]];
          if (!xs || !ys) return [];
          const has = ys.map((_, i) => i).filter((i) => ys[i] !== null && xs[i] !== null);
          return has.length
            ? [{ run: number, name: run.name, xs: has.map((i) => xs[i]), ys: has.map((i) => ys[i]) }]
            : [];
        }),
      rows: () => {
        const axes = Object.keys(X).filter(runsWith);
        const lines = data.runs.flatMap((run) =>
          (run.columns[key] || []).flatMap((value, i) =>
            value === null ? [] : [[run.name, ...axes.map((axis) => (run.columns[axis] || [])[i]), value]],
          ),
        );
        return [["run", ...axes, key], ...lines];
      },
    });
  }

  // ---- Sharpness
  const measured = data.runs
    .map((run, number) => ({ number, name: run.name, stages: (run.sharpness || { stages: [] }).stages }))
    .filter((run) => run.stages.length);
  for (const [key, title] of [
    ["lambda_max", "Largest eigenvalue of the Hessian, consensus model"],
    ["trace", "Trace of the Hessian, consensus model"],
  ]) {
    const of = (run) =>
      run.stages.filter(
        (stage) => stage.whose === "consensus" && stage[key] !== null && stage.epoch !== null,
      );
    if (!measured.some((run) => of(run).length)) continue;
    panel(document.getElementById("sharpness-panels"), {
      id: key,
      title,
      log: false,
      factor: 1,
      xName: () => "epoch",
      series: () =>
        measured
          .filter((run) => of(run).length)
          .map((run) => ({
            run: run.number,
            name: run.name,
            xs: of(run).map((s) => s.epoch),
            ys: of(run).map((s) => s[key]),
          })),
      rows: () => [
        ["run", "step", "epoch", key],
        ...measured.flatMap((run) => of(run).map((s) => [run.name, s.step, s.epoch, s[key]])),
      ],
    });
  }
  const dense = measured
    .map((run) => ({
      ...run,
      density: (run.stages.filter((s) => s.whose === "consensus" && s.density).pop() || {}).density,
    }))
    .filter((run) => run.density);
  if (dense.length) {
    panel(document.getElementById("sharpness-panels"), {
      id: "spectrum",
      title: "Density of the Hessian's eigenvalues at the last stage",
      log: true,
      factor: 1,
      xName: () => "eigenvalue",
      series: () =>
        dense.map((run) => ({ run: run.number, name: run.name, xs: run.density.x, ys: run.density.y })),
      rows: () => [
        ["run", "eigenvalue", "density"],
        ...dense.flatMap((run) => run.density.x.map((x, i) => [run.name, x, run.density.y[i]])),
      ],
    });
  }

  // ---- Landscapes, on one scale of colours
  const plains = data.runs.filter((run) => run.landscape);
  if (plains.length) {
    const host = document.getElementById("landscapes");
    host.replaceChildren();
    const losses = plains.flatMap((run) => run.landscape.loss.flat()).filter((value) => value !== null);
    const log = least(losses) > 0;
    for (const run of plains) {
      const { x, y, loss } = run.landscape;
      heat(host, {
        id: `landscape of ${run.name}`,
        title: `${run.name}: loss${log ? ", logarithmic colours" : ""}`,
        xs: x,
        ys: y,
        z: loss,
        xName: "x",
        yName: "y",
        low: least(losses),
        high: most(losses),
        log,
        contours: true,
        rows: () => [["x", "y", "loss"], ...y.flatMap((b, r) => x.map((a, c) => [a, b, loss[r][c]]))],
      });
    }
  }

  // ---- Measured contraction
  const contracted = data.runs.flatMap((run) =>
    ["zeta_by_layer", "gradient_zeta_by_layer"]
      .filter((key) => run.columns[key])
      .map((key) => ({ run, key })),
  );
  if (contracted.length) {
    const host = document.getElementById("contractions");
    host.replaceChildren();
    for (const { run, key } of contracted) {
      const lines = run.columns[key].map((_, i) => i).filter((i) => run.columns[key][i]);
      const epochs = lines.map((i) => run.columns.epoch[i]);
      const count = most(lines.map((i) => run.columns[key][i].length));
      const layers = Array.from({ length: count }, (_, k) => run.layers[k] ?? String(k));
      const z = layers.map((_, k) => lines.map((i) => run.columns[key][i][k] ?? null));
      const values = z.flat().filter((value) => value !== null);
      heat(host, {
        id: `${key} of ${run.name}`,
        title: `${run.name}: \u03b6 of ${key === "zeta_by_layer" ? "models" : "gradients"}`,
        xs: epochs,
        ys: layers,
        z,
        xName: "epoch",
        yName: "layer",
        low: Math.min(0, least(values)),
        high: 1,
        log: false,
        contours: false,
        tall: Math.min(300, 22 * count),
        rows: () => [
          ["run", "epoch", "layer", "zeta"],
          ...layers.flatMap((layer, k) => epochs.map((epoch, i) => [run.name, epoch, layer, z[k][i]])),
        ],
      });
    }
  }

  // ---- Graphs that take turns: one after the other in one place, or all of them side by side
  function takeTurns(turns) {
    const frames = [...turns.children];
    const button = html("button", { type: "button" });
    let at = 0;
    let timer = null;
    const play = (playing) => {
      clearInterval(timer);
      turns.classList.toggle("playing", playing);
      button.textContent = playing ? "show all steps" : "play the steps";
      const show = () => frames.forEach((frame, turn) => frame.classList.toggle("now", turn === at));
      show();
      if (playing)
        timer = setInterval(() => {
          at = (at + 1) % frames.length;
          show();
        }, 1000);
    };
    button.addEventListener("click", () => play(!turns.classList.contains("playing")));
    turns.before(button);
    play(!window.matchMedia("(prefers-reduced-motion: reduce)").matches);
  }

  // ---- CSV of what stands in the page already
  for (const element of document.querySelectorAll("table[data-csv]")) {
    const rows = () =>
      [...element.rows].map((row) => [...row.cells].map((one) => one.dataset.value ?? one.textContent));
    element.parentElement.after(csvButton(element.dataset.csv, rows));
  }
  for (const figure of document.querySelectorAll("figure[data-edges]")) {
    const { edges } = data.runs[Number(figure.dataset.edges)];
    const turns = figure.querySelector(".turns");
    const head = ["from", "to", "weight", ...(turns ? ["step"] : [])];
    figure.querySelector("figcaption").append(
      " ",
      csvButton("edges", () => [head, ...edges.map(([i, j, ...rest]) => [j, i, ...rest])]),
    );
    if (turns) takeTurns(turns);
  }
  for (const figure of document.querySelectorAll("figure[data-partition]")) {
    const run = data.runs[Number(figure.dataset.partition)];
    if (run.class_counts)
      figure.querySelector("figcaption").append(
        " ",
        csvButton("class counts", () => [
          ["agent", ...run.class_names],
          ...run.class_counts.map((row, agent) => [agent, ...row]),
        ]),
      );
  }
  const told = data.runs.filter((run) => Array.isArray(run.agents));
  if (told.length)
    document.querySelector("#agents p").append(
      " ",
      csvButton("agents", () => [
        ["run", "agent", "test"],
        ...told.flatMap((run) => run.agents.map((value, agent) => [run.name, agent, value])),
      ]),
    );
  window.addEventListener("beforeprint", () => {
    for (const element of document.querySelectorAll("details")) element.open = true;
  });
})();
