"use strict";
/* Shows what /api/penstock tells. Everything goes into the page as text, never as markup. */
(() => {
  const WAITS = ["source", "tokens", "queue", "memory", "log", "replica", "driver", "nothing"];
  const SHOWN = 100;
  const byId = (id) => document.getElementById(id);
  const batchId = new URLSearchParams(location.search).get("batch");

  function element(name, text, kind) {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function count(value) {
    if (value === null || value === undefined) return "";
    return Math.round(value).toLocaleString("en");
  }

  function duration(ms) {
    if (ms === null || ms === undefined) return "-";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    return `${(ms / 60000).toFixed(1)} min`;
  }

  function time(ms) {
    return ms === null || ms === undefined ? "" : new Date(ms).toLocaleString();
  }

  function table(caption, heads, rows) {
    const made = element("table");
    made.append(element("caption", caption));
    const head = element("tr");
    for (const name of heads) {
      const cell = element("th", name.replace(/^>/, ""), name.startsWith(">") ? "number" : "");
      cell.scope = "col";
      head.append(cell);
    }
    const top = element("thead");
    top.append(head);
    const body = element("tbody");
    for (const row of rows) {
      const line = element("tr");
      row.forEach((cell, at) => {
        const kind = heads[at].startsWith(">") ? "number" : "";
        if (cell instanceof Node) {
          const made = element("td", null, kind);
          made.append(cell);
          line.append(made);
        } else {
          line.append(element("td", cell, kind));
        }
      });
      body.append(line);
    }
    made.append(top, body);
    return made;
  }

  function unfolding(summary, text) {
    if (!text) return element("span", summary);
    const made = element("details");
    made.append(element("summary", summary), element("pre", text));
    return made;
  }

  /* Changes what is shown only if it is other than before: what somebody has unfolded stays. */
  const shown = new Map();
  function show(id, key, make) {
    const text = JSON.stringify(key);
    if (shown.get(id) === text) return;
    shown.set(id, text);
    byId(id).replaceChildren(...make());
  }

  // -- charts ----------------------------------------------------------------------------------

  const CHARTS = [
    ["records_per_second", "Input Rate", "records/sec", count],
    ["scheduling_delay_ms", "Scheduling Delay", "ms", duration],
    ["processing_ms", "Processing Time", "ms", duration],
    ["total_delay_ms", "Total Delay", "ms", duration],
    ["waiting_batches", "Waiting Batches", "batches", count],
  ];
  const HEIGHT = 180;
  const charts = new Map();
  /* A chart's place gets narrower when another one comes beside it, and when the window does. */
  const widths = new ResizeObserver((changes) => {
    for (const { plot, place } of charts.values()) {
      const width = widthOf(place);
      if (plot.width !== width && changes.some((change) => change.target === place)) plot.setSize({ width, height: HEIGHT });
    }
  });

  function widthOf(place) {
    return Math.max(280, place.clientWidth);
  }

  let batchMs = 0;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function drawInterval(plot) {
    if (!batchMs) return;
    const y = plot.valToPos(batchMs, "y", true);
    if (y < plot.bbox.top) return;
    plot.ctx.save();
    plot.ctx.strokeStyle = colour("--bad");
    plot.ctx.setLineDash([6, 4]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(plot.bbox.left, y);
    plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  function chart(name, title, unit, text, series, lines) {
    const known = charts.get(name);
    if (known && known.lines === lines.length) {
      known.plot.setData(series);
      known.place.setAttribute("aria-label", label(title, unit, text, series));
      return;
    }
    if (known) known.plot.destroy();
    const place = known ? known.place : element("figure", null, "chart");
    if (!known) {
      place.setAttribute("role", "img");
      byId("charts").append(place);
      widths.observe(place);
    }
    place.setAttribute("aria-label", label(title, unit, text, series));
    place.replaceChildren(element("h3", `${title} (${unit})`));
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line") } };
    const hooks = name === "processing_ms" ? { draw: [drawInterval] } : {};
    const plot = new uPlot({
      width: widthOf(place),
      height: HEIGHT,
      hooks,
      legend: { show: lines.length > 1 },
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, name === "processing_ms" ? batchMs : 1) * 1.1] } },
      axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map(text) }],
      series: [{}, ...lines.map((line) => ({ label: line.name, stroke: line.colour, width: 1.5, spanGaps: true, value: (_, value) => text(value) }))],
    }, series, place);
    charts.set(name, { plot, place, lines: lines.length });
  }

  function label(title, unit, text, series) {
    const known = series[1].filter((value) => value !== null);
    const last = known.length ? text(known[known.length - 1]) : "nothing yet";
    return `${title}, ${unit}: now ${last}`;
  }

  const LINES = ["--tokens", "--queue", "--memory", "--log", "--replica", "--nothing"];

  function drawCharts(history, streams) {
    const column = (rows, at) => rows.map((row) => row[at]);
    const times = column(history.totals, 0);
    for (const [name, title, unit, text] of batchMs ? CHARTS : CHARTS.slice(0, 1)) {
      const series = [times, column(history.totals, history.names.indexOf(name))];
      const lines = [{ name: "all", colour: colour("--ink") }];
      if (name === "records_per_second") {
        const at = history.streamNames.indexOf(name);
        for (const stream of streams.slice(0, LINES.length)) {
          const found = history.streams[stream.id];
          if (!found) continue;
          const told = new Map(found.figures.map((row) => [row[0], row[at]]));
          series.push(times.map((moment) => told.get(moment) ?? null));
          lines.push({ name: stream.name, colour: colour(LINES[lines.length - 1]) });
        }
      }
      chart(name, title, unit, text, series, lines);
    }
    for (const canvas of document.querySelectorAll("canvas.band")) {
      drawBand(canvas, history.streams[canvas.dataset.stream]);
    }
  }

  /* How often the last batches had how much, below each timeline. */
  const HISTOGRAMS = {
    records_per_second: (batch) => (batch.records * 1000) / batchMs,
    scheduling_delay_ms: (batch) => batch.schedulingDelayMs,
    processing_ms: (batch) => batch.processingMs,
    total_delay_ms: (batch) => batch.totalDelayMs,
  };
  const BARS = 8;

  function drawHistograms(batches) {
    for (const [name, title, , text] of CHARTS) {
      const value = HISTOGRAMS[name];
      const known = charts.get(name);
      if (!value || !known) continue;
      const values = batches.map(value).filter((found) => found !== null && found !== undefined);
      if (!values.length) continue;
      const step = Math.max(...values, 1) / BARS;
      const counts = new Array(BARS).fill(0);
      for (const found of values) counts[Math.min(BARS - 1, Math.floor(found / step))] += 1;
      const bars = element("ol", null, "bars");
      bars.setAttribute("aria-label", `Histogram of ${title}, last ${values.length} batches`);
      counts.forEach((count, at) => {
        const line = element("li", `${text(at * step)} to ${text((at + 1) * step)}: ${count}`);
        line.style.setProperty("--part", count / values.length);
        bars.append(line);
      });
      known.place.querySelector(".bars")?.remove();
      known.place.append(bars);
    }
  }

  function drawBand(canvas, found) {
    const drawing = canvas.getContext("2d");
    drawing.clearRect(0, 0, canvas.width, canvas.height);
    if (!found || !found.waits.length) return;
    const first = found.waits[0][0];
    const span = Math.max(60, found.waits[found.waits.length - 1][0] - first + 1);
    for (const row of found.waits) {
      let y = canvas.height;
      const x = ((row[0] - first) / span) * canvas.width;
      const width = Math.max(1, canvas.width / Math.min(span, found.waits.length + 1));
      WAITS.forEach((name, at) => {
        const height = ((row[at + 1] ?? 0) / 100) * canvas.height;
        drawing.fillStyle = colour(`--${name}`);
        drawing.fillRect(x, y - height, width, height);
        y -= height;
      });
    }
  }

  // -- overview --------------------------------------------------------------------------------

  function receiverRow(found) {
    const state = element("span", found.state === "running" ? "ACTIVE" : found.state.toUpperCase(), found.state === "running" ? "good" : "bad");
    const band = element("canvas", null, "band");
    band.dataset.stream = found.stream;
    band.width = 256;
    band.height = 26;
    const waits = element("div");
    waits.append(band, element("span", found.waitsFor ?? ""));
    const limit = found.limitPerSecond === null ? "no limit" : `${count(found.limitPerSecond)} (${found.limitBy})`;
    const way = found.queuedBlocks === undefined ? "" : `${count(found.openRecords)} open records, ${found.queuedBlocks} blocks for the log, ${found.storedBlocks} for the driver`;
    const latency = found.latencyMs ? `${duration(found.latencyMs[0])} / ${duration(found.latencyMs[1])}` : "";
    const log = found.log ? `${count(found.log.bytes / 1048576)} MiB in ${found.log.segments} segments, a sync ${duration(found.log.syncMs)}` : "";
    const error = found.lastError ? unfolding(`${time(found.lastErrorMs)} ${found.lastError.slice(0, 100)}`, found.lastErrorDetail || found.lastError) : "";
    return [found.name, state, `${found.executor} / ${found.host}`, count(found.recordsPerSecond), limit, waits, way, latency, log, found.position ?? "", count(found.lagRecords), count(found.discardedRecords), count(found.attempts), error];
  }

  function receiversView(status) {
    const heads = ["Stream", "Status", "Executor ID / Host", ">Records/sec", "Limit", "Waits for", "Blocks on their way", "Acknowledged after (p50 / p99)", "Log", "Position", ">Lag", ">Discarded", ">Starts", "Last Error"];
    const key = element("p");
    for (const name of WAITS) key.append(element("span", null, `key ${name}`), element("span", name));
    const active = status.receivers.filter((found) => found.state === "running").length;
    const executors = new Map();
    for (const found of status.receivers.filter((each) => each.host)) {
      const place = `${found.executor} / ${found.host}`;
      executors.set(place, [...(executors.get(place) ?? []), found]);
    }
    const places = [...executors].map(([place, there]) => [place, there.map((found) => found.name).join(", "), count(there.reduce((sum, found) => sum + (found.recordsPerSecond ?? 0), 0))]);
    const more = places.length ? [table("Executors with receivers", ["Executor ID / Host", "Receivers", ">Records/sec"], places)] : [];
    return [key, table(`${active} / ${status.receivers.length} active`, heads, status.receivers.map(receiverRow)), ...more];
  }

  function queriesView(kept) {
    const rows = kept.flatMap((stream) => {
      const held = [stream.name, `${count(stream.bytes / 1048576)} MiB in ${count(stream.blocks)} blocks`, count(stream.records)];
      if (!stream.queries.length) return [[...held, "no query reads it", "", ""]];
      return stream.queries.map((query) => [...held, query.consumer, count(query.recordsBehind), time(query.seenMs)]);
    });
    return table("What is kept for queries, and how far they are", ["Stream", "Kept", ">Records so far", "Query", ">Records behind", "Last seen (to ten minutes)"], rows);
  }

  function batchLink(found) {
    const link = element("a", time(found.id));
    link.href = `./?batch=${found.id}`;
    return link;
  }

  function stateOf(found) {
    const state = found.status.toLowerCase();
    return found.running.length ? `${state}: ${found.running.join(", ")}` : state;
  }

  function batchRow(found) {
    const done = `${found.operationsDone}/${found.operationsTotal}`;
    return [batchLink(found), count(found.records), duration(found.planningMs), duration(found.schedulingDelayMs), duration(found.processingMs), duration(found.totalDelayMs), found.operationsFailed ? `${done} (${found.operationsFailed} failed)` : done, stateOf(found), element("span", found.error, "bad")];
  }

  const BATCH_HEADS = ["Batch Time", ">Records", ">Planning", ">Scheduling Delay", ">Processing Time", ">Total Delay", ">Output Ops: Succeeded/Total", "Status", "Error"];

  function overview(status) {
    const totals = status.totals;
    batchMs = status.application.batchMs;
    document.title = `${status.application.name} - Streaming`;
    byId("name").textContent = status.application.name;
    byId("sentence").textContent = status.sentence;
    byId("skipped").hidden = !totals.skippedBlocks;
    byId("skipped").textContent = `${count(totals.skippedBlocks)} blocks were left out of batches because no host has them.`;
    byId("since").textContent = totals.startedMs === null ? "" : !batchMs ? `Receiving since ${time(totals.startedMs)}` :
      `Running batches of ${duration(batchMs)} since ${time(totals.startedMs)} (${count(totals.completedBatches)} completed batches, ${count(totals.processedRecords)} records)`;
    if (batchId) return;
    byId("active-section").hidden = byId("completed-section").hidden = !batchMs;
    byId("queries-section").hidden = !status.kept.length;
    show("queries", status.kept, () => [queriesView(status.kept)]);
    show("receivers", status.receivers, () => receiversView(status));
    const active = status.batches.filter((found) => found.status !== "COMPLETED");
    show("active", active, () => [table(`${totals.waitingBatches} waiting, ${totals.runningBatches} running`, BATCH_HEADS, active.map(batchRow))]);
    show("completed", completed, () => [table(`last ${completed.length} out of ${count(totals.completedBatches)}`, BATCH_HEADS, completed.slice(0, SHOWN).map(batchRow))]);
    show("events", status.events.map((event) => [event.number, event.atMs]), () => status.events.slice().reverse().map((event) => {
      const line = element("li", null, event.isError ? "bad" : "");
      line.append(unfolding(`${time(event.atMs)}  ${event.text}`, event.detail));
      return line;
    }));
    show("rate-stream", status.receivers.map((found) => found.name), () => status.receivers.map((found) => {
      const option = element("option", found.name);
      option.value = found.stream;
      return option;
    }));
  }

  // -- a batch ---------------------------------------------------------------------------------

  async function showBatch() {
    const answer = await ask(`api/penstock/batch?id=${encodeURIComponent(batchId)}`);
    if (!answer.ok) {
      byId("batch-head").textContent = `Batch ${batchId}: ${(await answer.text()).trim()}`;
      return;
    }
    const found = await answer.json();
    byId("batch-head").textContent = `Details of batch at ${time(found.id)}`;
    const facts = [["Batch Duration", duration(batchMs)], ["Input data size", `${count(found.records)} records`], ["Planning", duration(found.planningMs)], ["Scheduling delay", duration(found.schedulingDelayMs)], ["Processing time", duration(found.processingMs)], ["Total delay", duration(found.totalDelayMs)], ["Status", stateOf(found)], ...found.slowBlocks.map((text) => ["Slow to read", text])];
    show("batch-facts", facts, () => facts.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
    show("batch-inputs", found.inputs, () => [table("", ["Input", ">Records", "Metadata"], found.inputs.map((input) => [`Stream ${input.stream}`, count(input.records), element("pre", input.description ?? "")]))]);
    show("batch-operations", found.operations, () => [table("", [">Output Op Id", "Description", ">Duration", "Status", "Jobs", "Error"], found.operations.map((operation) => {
      const jobs = element("span");
      for (const job of operation.jobs) {
        const link = element("a", `${job} `);
        if (sparkUi) link.href = `${sparkUi}/jobs/job/?id=${job}`;
        jobs.append(link);
      }
      const status = operation.error ? "failed" : operation.durationMs === null ? "processing" : "succeeded";
      const last = operation.error ? operation.error.trim().split("\n").pop() : "";
      return [operation.number, unfolding(operation.name, operation.description), duration(operation.durationMs), status, jobs, operation.error ? unfolding(last, operation.error) : ""];
    }))]);
  }

  // -- life ------------------------------------------------------------------------------------

  let sparkUi = null;
  let streams = [];
  let receivers = [];
  let completed = [];

  function lost(is) {
    byId("lost").hidden = !is;
  }

  /* What is known already is not asked for again: of the last point there may be more now. */
  let history = null;
  let asking = false;

  function newest() {
    const rows = history ? history.totals : [];
    return rows.length ? rows[rows.length - 1][0] : 0;
  }

  function joined(rows, more, since) {
    const first = more.length ? more[0][0] : Infinity;
    return [...rows.filter((row) => row[0] >= since && row[0] < first), ...more];
  }

  function join(more, span) {
    if (!history) return { ...more, span };
    const last = more.totals.length ? more.totals[more.totals.length - 1][0] : newest();
    const since = last - span + 1;
    const all = {};
    for (const [stream, found] of Object.entries(more.streams)) {
      const known = history.streams[stream] ?? { figures: [], waits: [] };
      all[stream] = { figures: joined(known.figures, found.figures, since), waits: joined(known.waits, found.waits, since) };
    }
    return { ...more, span, totals: joined(history.totals, more.totals, since), streams: all };
  }

  async function refreshHistory() {
    if (batchId || document.hidden || asking) return;
    asking = true;
    try {
      const span = Number(byId("span").value);
      if (history && history.span !== span) history = null;
      const answer = await ask(`api/penstock/history?seconds=${span}&since=${newest()}`);
      if (!answer.ok) return;
      const more = await answer.json();
      if (history && history.stepS !== more.stepS) {
        history = null; // It has other receivers now: from the start, with the next news.
        return;
      }
      history = join(more, span);
      drawCharts(history, streams);
      drawHistograms(completed);
    } finally {
      asking = false;
    }
  }

  let lettersAt = 0;

  async function refreshLetters() {
    if (batchId || document.hidden || Date.now() - lettersAt < 3000) return;
    lettersAt = Date.now();
    const answer = await ask("api/penstock/dead-letters");
    if (!answer.ok) return;
    const found = await answer.json();
    // Those on other hosts' disks are only counted, by who discarded them.
    const elsewhere = found.kinds.length ? [] : receivers.filter((each) => each.discardedRecords);
    byId("letters-section").hidden = !found.kinds.length && !elsewhere.length;
    show("letters", [found, elsewhere.map((each) => [each.name, each.discardedRecords])], () => {
      if (elsewhere.length) {
        return [table("Discarded by receivers", ["Stream", "Host", ">Records"], elsewhere.map((each) => [each.name, each.host, count(each.discardedRecords)])),
          element("p", "This driver does not see them: where they are kept, penstock dead-letters shows them on those hosts.")];
      }
      const all = found.kinds.reduce((sum, kind) => sum + kind.count, 0);
      const kinds = table(`${count(all)} records were discarded`, [">Stream", "By", "Error", ">Records", "Last"],
        found.kinds.map((kind) => [kind.stream, kind.receiver, kind.error, count(kind.count), time(kind.lastMs)]));
      if (!found.samples) return [kinds, element("p", "spark.penstock.ui.samples shows some of them; penstock dead-letters shows all.")];
      return [kinds, table("The last of them", ["Time", ">Stream", "Reason", "Position", "Record"],
        found.samples.map((letter) => [time(letter.atMs), letter.stream, letter.reason, letter.position ?? "", element("code", letter.record)]))];
    });
  }

  function take(status) {
    // Only addresses of the web: a link must run nothing.
    sparkUi = /^https?:/.test(status.application.sparkUi ?? "") ? status.application.sparkUi : null;
    streams = status.streams;
    receivers = status.receivers;
    completed = status.batches.filter((found) => found.status === "COMPLETED");
    lost(false);
    overview(status);
    const done = batchId ? showBatch() : Promise.all([refreshHistory(), refreshLetters()]);
    done.catch(() => lost(true));
  }

  /* The token of this run, for this tab and this origin: a cookie would go to all ports of the host. */
  const KEPT = `penstock ${location.pathname}`;
  let token = null;

  function keep(given) {
    token = given;
    try {
      sessionStorage.setItem(KEPT, given);
    } catch {
      // A browser may be told to keep nothing: then it is known until the next page.
    }
  }

  function kept() {
    try {
      return sessionStorage.getItem(KEPT);
    } catch {
      return null;
    }
  }

  function ask(path, options = {}) {
    const proof = token ? { Authorization: `Bearer ${token}` } : {};
    return fetch(path, { ...options, headers: { ...options.headers, ...proof } });
  }

  async function logIn() {
    token = kept();
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!code) return;
    window.history.replaceState(null, "", location.pathname + location.search);
    const answer = await ask("api/penstock/login", { method: "POST", body: JSON.stringify({ code }) });
    if (answer.ok) keep((await answer.json()).token);
    else byId("refused").textContent = `${(await answer.text()).trim()}: penstock apps prints a new one`;
    byId("refused").hidden = answer.ok;
  }

  const PATIENCE_MS = 45000;
  /* Follows the events of an answer; the server sends something every fifteen seconds at least. */
  async function follow(answer, ending) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const late = setTimeout(() => ending.abort(), PATIENCE_MS);
      const { value, done } = await reader.read();
      clearTimeout(late);
      if (done) return;
      text += value;
      const end = text.lastIndexOf("\n\n");
      if (end < 0) continue;
      const news = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
      text = text.slice(end + 2);
      if (news.length) take(JSON.parse(news[news.length - 1].slice("data: ".length)));
    }
  }

  /* By `fetch` and not by an EventSource, which sends no header. */
  async function listen() {
    for (;;) {
      try {
        const ending = new AbortController();
        let answer = await ask("api/penstock/live", { signal: ending.signal });
        if (answer.ok) await follow(answer, ending);
        // Where too many listen already, it is asked every few seconds instead.
        if (answer.status === 503) answer = await ask("api/penstock/status");
        if (answer.status === 403) byId("sentence").textContent = (await answer.text()).trim();
        else if (answer.ok && !answer.bodyUsed) take(await answer.json());
        else throw new Error("it ended");
      } catch {
        lost(true);
        history = null;
      }
      await new Promise((resolve) => setTimeout(resolve, 3000));
    }
  }

  async function act(action, what) {
    byId("acted").textContent = "";
    try {
      const answer = await ask(`api/penstock/actions/${action}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
      byId("acted").textContent = answer.ok ? (await answer.json()).done : (await answer.text()).trim();
    } catch {
      byId("acted").textContent = "The program does not answer.";
    }
  }

  async function begin() {
    byId("overview").hidden = Boolean(batchId);
    byId("batch").hidden = !batchId;
    byId("span").addEventListener("change", refreshHistory);
    byId("rate").addEventListener("submit", (event) => {
      event.preventDefault();
      const rate = byId("rate-value").value.trim();
      act("rate", { stream: Number(byId("rate-stream").value), rate: rate || null });
    });
    for (const action of ["pause", "resume", "restart", "seal"]) {
      byId(action).addEventListener("click", () => act(action, { stream: Number(byId("rate-stream").value) }));
    }
    byId("stop").addEventListener("click", () => {
      if (confirm("Stop the streams gracefully?")) act("stop", { graceful: true });
    });
    // A link that is pasted into the tab of this page does not load it again.
    addEventListener("hashchange", () => location.reload());
    await logIn();
    listen();
    const answer = await ask("api/penstock/me");
    const may = answer.ok && (await answer.json()).mayAct;
    byId("acting").hidden = !may;
    byId("looking").hidden = may || !answer.ok;
  }

  begin().catch(() => lost(true));
})();
