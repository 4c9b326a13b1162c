// Agents over time: the graph with each agent coloured by its own model's result, and all of it as a heat map.
const agents = (() => {
  const { html, svg, short, least, most } = charts;
  const MOST_ROWS = 10000; // of a table; more arguments than an engine takes are no row each

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
          if (!turns.isConnected) clearInterval(timer);
          at = (at + 1) % frames.length;
          show();
        }, 1000);
    };
    button.addEventListener("click", () => play(!turns.classList.contains("playing")));
    turns.before(button);
    play(!window.matchMedia("(prefers-reduced-motion: reduce)").matches);
  }

  // What was evaluated when: {epoch, step, values}, in order; values are of the agents' own models.
  function momentsOf(run) {
    const { key } = run.headline;
    const { [key]: column, epoch, step } = run.columns;
    const found = (column || []).flatMap((values, i) =>
      Array.isArray(values) && values.some((value) => value !== null) ? [{ epoch: epoch[i], step: step[i], values }] : [],
    );
    const last = (list) => (list && list.length ? list[list.length - 1] : 0);
    if (!found.length && Array.isArray(run.agents))
      found.push({ epoch: last(epoch), step: last(step), values: run.agents });
    return found;
  }

  // ---- The viewer. It remembers which run and which moment are looked at while new data come in.
  function viewer(host, data) {
    const chosen = { run: null, at: Infinity, playing: null };
    const stage = html("div", { class: "stage" });
    const graph = html("figure", { class: "graphs" });
    const map = html("div", { class: "maps" });
    const picker = html("select", { id: "agents-run" });
    const slider = html("input", { type: "range", min: "0", step: "1", id: "agents-at" });
    const play = html("button", { type: "button" }, "play");
    const said = html("output", { for: "agents-at" });
    const listed = html("details", { class: "listed screen" }, html("summary", {}, "These values as a table"), html("div"));
    const runRow = html("label", { for: "agents-run" }, "run ", picker);
    const timeRow = html("span", { class: "time" }, html("label", { for: "agents-at" }, "time "), slider, play);
    host.replaceChildren(html("div", { class: "bar" }, runRow, timeRow, said), stage, listed);
    stage.append(graph, map);
    let heatMap = null;

    const runs = () => data.runs.map((run, number) => ({ run, number, moments: momentsOf(run) }));
    const current = () => runs().find((one) => one.number === chosen.run);
    const text = (run, value) =>
      value === null || value === undefined
        ? "not finite"
        : run.headline.factor === 100
          ? `${(100 * value).toFixed(2)} %`
          : short(value);

    function fill() {
      const told = runs().filter((one) => one.moments.length);
      if (!told.some((one) => one.number === chosen.run)) chosen.run = told.length ? told[0].number : null;
      picker.replaceChildren(
        ...told.map(({ run, number }) => html("option", { value: String(number) }, run.name)),
      );
      if (chosen.run === null) return;
      picker.value = String(chosen.run);
      runRow.hidden = told.length < 2;
      const { run, moments, number } = current();
      timeRow.hidden = moments.length < 2;
      slider.max = String(moments.length - 1);
      const drawn = [...document.querySelectorAll("#graph figure[data-runs]")].find((figure) =>
        figure.dataset.runs.split(" ").includes(String(number)),
      );
      const picture = drawn && drawn.querySelector(".turns, svg.graph");
      const copy = picture ? picture.cloneNode(true) : null;
      graph.replaceChildren(...(copy ? [copy] : []));
      if (copy && copy.classList.contains("turns")) takeTurns(copy);
      drawMap(run, moments);
      show();
    }

    function drawMap(run, moments) {
      map.replaceChildren();
      heatMap = null;
      if (moments.length < 2) return;
      const values = moments.flatMap((moment) => moment.values).filter((value) => value !== null);
      const names = moments[0].values.map((_, agent) => `agent ${agent}`);
      const { factor, title } = run.headline;
      heatMap = heat(map, {
        id: `agents of ${run.name}`,
        title: `Test ${title} of each agent${factor === 100 ? ", %" : ""}`,
        xs: moments.map((moment) => moment.epoch),
        ys: names,
        z: names.map((_, agent) => moments.map((m) => (m.values[agent] === null ? null : factor * m.values[agent]))),
        xName: "epoch",
        yName: "",
        low: factor * least(values),
        high: factor * most(values),
        log: false,
        contours: false,
        tall: Math.max(90, Math.min(260, 24 * names.length)),
        rows: () => [
          ["run", "step", "epoch", "agent", title],
          ...moments.flatMap((m) => m.values.map((value, agent) => [run.name, m.step, m.epoch, agent, value])),
        ],
      });
    }

    function show() {
      const { run, moments } = current();
      const at = Math.min(chosen.at, moments.length - 1);
      slider.value = String(at);
      const moment = moments[at];
      const values = moments.flatMap((one) => one.values).filter((value) => value !== null);
      const [low, high] = [least(values), most(values)];
      const part = (value) => (high > low ? (value - low) / (high - low) : 1);
      for (const agent of graph.querySelectorAll(".agent")) {
        const value = moment.values[Number(agent.dataset.agent)];
        const tint = value === null || value === undefined ? null : part(value);
        agent.querySelector("circle").style.fill = tint === null ? "var(--line)" : heat.shade(tint);
        agent.querySelector("text").style.fill = tint === null || tint > 0.6 ? "#14171b" : "#ffffff";
        agent.querySelector("title").textContent = `agent ${agent.dataset.agent}: ${text(run, value)}`;
      }
      const finite = moment.values.filter((value) => value !== null);
      const when = `epoch ${short(moment.epoch)}`;
      said.textContent = `${when}: ${text(run, least(finite))} to ${text(run, most(finite))}`;
      slider.setAttribute("aria-valuetext", said.textContent);
      if (heatMap) heatMap.mark(at);
      const rows = moment.values.slice(0, MOST_ROWS).map((value, agent) =>
        html("tr", {}, html("td", { class: "number" }, String(agent)), html("td", { class: "number" }, text(run, value))),
      );
      const heads = ["agent", `test ${run.headline.title}, ${when}`];
      const head = html("tr", {}, ...heads.map((name) => html("th", { scope: "col", class: "number" }, name)));
      const table = html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows));
      const [some, every] = [rows, moment.values].map((list) => list.length.toLocaleString("en"));
      const left = html("p", { class: "small" }, `${some} of ${every} agents are listed; the CSV has all.`);
      listed.lastElementChild.replaceChildren(table, ...(rows.length < moment.values.length ? [left] : []));
    }

    function stop() {
      clearInterval(chosen.playing);
      chosen.playing = null;
      play.textContent = "play";
    }
    picker.addEventListener("change", () => {
      stop();
      Object.assign(chosen, { run: Number(picker.value), at: Infinity });
      fill();
    });
    slider.addEventListener("input", () => {
      stop();
      // At the end it stays at the end, also when more comes in.
      chosen.at = slider.value === slider.max ? Infinity : Number(slider.value);
      show();
    });
    play.addEventListener("click", () => {
      if (chosen.playing) return stop();
      play.textContent = "stop";
      let at = Number(slider.value) >= Number(slider.max) ? -1 : Number(slider.value);
      chosen.playing = setInterval(() => {
        at += 1;
        chosen.at = at >= Number(slider.max) ? Infinity : at;
        show();
        if (chosen.at === Infinity) stop();
      }, 350);
    });
    fill();
    return fill;
  }
  return { viewer, takeTurns };
})();
