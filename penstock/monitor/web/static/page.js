"use strict";
/* Shows what /api/penstock tells. */
import { Timeline } from "./charts.js";
import { Receivers } from "./receivers.js";
import { count, duration, element, table, time, unfolding } from "./text.js";

const SHOWN = 100;
const byId = (id) => document.getElementById(id);
const batchId = new URLSearchParams(location.search).get("batch");

/* Changes what is shown only if it is other than before; what somebody has unfolded stays so, and
   the link on which the keyboard stands is found again. */
const shown = new Map();
function show(id, key, make) {
  const text = JSON.stringify(key);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const place = byId(id);
  const said = (found) => found.textContent;
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map(said));
  const focus = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...make());
  for (const found of place.querySelectorAll("details > summary")) found.parentElement.open = open.has(said(found));
  if (focus && focus !== place) [...place.querySelectorAll(focus.localName)].find((found) => said(found) === said(focus))?.focus({ preventScroll: true });
}

// -- charts ----------------------------------------------------------------------------------

const CHARTS = [
  ["records_per_second", "Input Rate", "records/sec", count],
  ["scheduling_delay_ms", "Scheduling Delay", "ms", duration],
  ["processing_ms", "Processing Time", "ms", duration],
  ["total_delay_ms", "Total Delay", "ms", duration],
  ["waiting_batches", "Waiting Batches", "batches", count],
];
const charts = new Map();
let batchMs = 0;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const KINDS = ["tokens", "queue", "memory", "log", "replica", "nothing"];

/* What a batch has of a timeline: beside it stands how often the last batches had how much. */
const OF_BATCHES = {
  records_per_second: (batch) => (batch.records * 1000) / batchMs,
  scheduling_delay_ms: (batch) => batch.schedulingDelayMs,
  processing_ms: (batch) => batch.processingMs,
  total_delay_ms: (batch) => batch.totalDelayMs,
};

function drawCharts(history, streams, batches) {
  const column = (rows, at) => rows.map((row) => row[at]);
  const times = column(history.totals, 0);
  for (const [name, title, unit, text] of batchMs ? CHARTS : CHARTS.slice(0, 1)) {
    const lines = [{ name: "all", kind: "all", values: column(history.totals, history.names.indexOf(name)) }];
    if (name === "records_per_second") {
      const at = history.streamNames.indexOf(name);
      for (const stream of streams.slice(0, KINDS.length)) {
        const found = history.streams[stream.id];
        if (!found) continue;
        const told = new Map(found.figures.map((row) => [row[0], row[at]]));
        lines.push({ name: stream.name, kind: KINDS[lines.length - 1], values: times.map((moment) => told.get(moment) ?? null) });
      }
    }
    if (!charts.has(name)) {
      charts.set(name, new Timeline(title, unit, text, text === duration));
      byId("charts").append(charts.get(name).place);
    }
    const of = batchMs ? OF_BATCHES[name] : null;
    const values = of ? batches.map(of).filter((found) => found !== null && found !== undefined) : [];
    charts.get(name).more = lines.length > 1 ? streams.length - KINDS.length : 0;
    charts.get(name).show(times, history.stepS, lines, name === "processing_ms" ? batchMs : 0, values);
  }
  receiversShown.drawBands(history.streams, history.stepS, colour);
}

// -- overview --------------------------------------------------------------------------------

const receiversShown = new Receivers(byId("receivers"));

function queriesView(kept) {
  const rows = kept.flatMap((stream) => {
    const held = [stream.name, `${count(stream.bytes / 1048576)} MiB in ${count(stream.blocks)} blocks`, count(stream.records)];
    if (!stream.queries.length) return [[...held, "no query reads it", "", ""]];
    return stream.queries.map((query) => [...held, query.consumer, count(query.recordsBehind), time(query.seenMs)]);
  });
  return table("What is kept for queries, and how far they are", ["Stream", "Kept", ">Records so far", "Query", ">Records behind", "Last seen (to ten minutes)"], rows);
}

function epochsView(epochs) {
  const rows = epochs.map((found) => [found.name, count(found.logged), count(found.committed), duration(found.ageMs), count(found.records), count(found.deadLetters), count(found.late), count(found.failures), found.waitsFor]);
  return table("How far functions and sinks are", ["Stream", ">Logged", ">Committed", ">Age", ">Records", ">Dead letters", ">Late", ">Failures since the last", "Waits for"], rows);
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
  return [batchLink(found), count(found.records), duration(found.planningMs), duration(found.schedulingDelayMs), duration(found.processingMs), duration(found.totalDelayMs), found.operationsFailed ? `${done} (${found.operationsFailed} failed)` : done, stateOf(found), found.error ? element("div", found.error, "wrong bad") : ""];
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
  byId("epochs-section").hidden = !status.epochs.length;
  show("epochs", status.epochs, () => [epochsView(status.epochs)]);
  receiversShown.show(status.receivers);
  const active = status.batches.filter((found) => found.status !== "COMPLETED");
  const waiting = `${totals.waitingBatches} waiting, ${totals.runningBatches} running`;
  show("active", [active, waiting], () => [active.length ? table(waiting, BATCH_HEADS, active.map(batchRow)) : element("p", waiting, "faint")]);
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
    drawCharts(history, streams, completed);
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
