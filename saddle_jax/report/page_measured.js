// What was measured beside the curves: sharpness, landscapes, contraction by layer.
const measured = (() => {
  const { panel, least, most } = charts;

  // ---- Sharpness
  function sharpness(data, hostOf) {
    const groupOf = (index) => data.groups.findIndex((group) => group.runs.includes(index));
    const host = hostOf("sharpness-panels");
    if (!host) return;
    host.replaceChildren();
    const measured = data.runs
      .map((run, index) => ({ index, name: run.name, stages: (run.sharpness || { stages: [] }).stages }))
      .filter((run) => run.stages.length)
      .map((run) => ({ ...run, group: groupOf(run.index), look: data.groups[groupOf(run.index)].look }));
    const line = (run, xs, ys) => ({ group: run.group, name: run.name, look: run.look, xs, ys, halves: null });
    for (const [key, title] of [
      ["lambda_max", "Largest eigenvalue of the Hessian, consensus model"],
      ["trace", "Trace of the Hessian, consensus model"],
    ]) {
      const of = (run) =>
        run.stages.filter(
          (stage) => stage.whose === "consensus" && stage[key] !== null && stage.epoch !== null,
        );
      const told = measured.filter((run) => of(run).length);
      if (!told.length) continue;
      panel(host, {
        id: key,
        title,
        log: false,
        factor: 1,
        xName: () => "epoch",
        series: () =>
          told.map((run) =>
            line(
              run,
              of(run).map((s) => s.epoch),
              of(run).map((s) => s[key]),
            ),
          ),
        rows: () => [
          ["run", "step", "epoch", key],
          ...told.flatMap((run) => of(run).map((s) => [run.name, s.step, s.epoch, s[key]])),
        ],
      });
    }
    const dense = measured
      .map((run) => ({
        ...run,
        density: (run.stages.filter((s) => s.whose === "consensus" && s.density).pop() || {}).density,
      }))
      .filter((run) => run.density);
    if (dense.length)
      panel(host, {
        id: "spectrum",
        title: "Density of the Hessian's eigenvalues at the last stage",
        log: true,
        factor: 1,
        xName: () => "eigenvalue",
        series: () => dense.map((run) => line(run, [...run.density.x], [...run.density.y])),
        rows: () => [
          ["run", "eigenvalue", "density"],
          ...dense.flatMap((run) => run.density.x.map((x, i) => [run.name, x, run.density.y[i]])),
        ],
      });
  }

  // ---- Landscapes, on one scale of colours
  function landscapes(data, hostOf) {
    const host = hostOf("landscapes");
    if (!host) return;
    host.replaceChildren();
    const plains = data.runs.filter((run) => run.landscape);
    const losses = plains.flatMap((run) => run.landscape.loss.flat()).filter((value) => value !== null);
    const log = least(losses) > 0;
    for (const run of plains) {
      const { x, y, loss, points } = run.landscape;
      const some = x.length < points[0] || y.length < points[1];
      const part = some ? `, ${x.length} x ${y.length} of ${points.join(" x ")} points` : "";
      heat(host, {
        id: `landscape of ${run.name}`,
        title: `${run.name}: loss${log ? ", logarithmic colours" : ""}${part}`,
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
  function contractions(data, hostOf) {
    const host = hostOf("contractions");
    if (!host) return;
    host.replaceChildren();
    const contracted = data.runs.flatMap((run) =>
      ["zeta_by_layer", "gradient_zeta_by_layer"]
        .filter((key) => run.columns[key])
        .map((key) => ({ run, key })),
    );
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

  return (data, hostOf) => {
    for (const draw of [sharpness, landscapes, contractions]) draw(data, hostOf);
  };
})();
