"use strict";
/* The receivers, one a row, which stays the same row while its figures change. */
import { count, duration, element, headOf, table, time } from "./text.js";

const WAITS = ["source", "tokens", "queue", "memory", "log", "replica", "driver", "nothing"];
const HEADS = ["Stream", "Status", ">Records/sec", "Limit", "Waits for", ">Lag", ">Discarded", "Trouble, or last error"];
const NAMED = 5;
const LEAST_SPAN_S = 60;

/* One receiver: a row, and below it what is shown when somebody unfolds it. */
class Row {
  constructor(stream) {
    this.stream = stream;
    this.line = element("tr");
    this.more = element("tr", null, "more");
    this.more.hidden = true;
    this.more.id = `receiver-${stream}`;
    this.name = element("button", null, "unfold");
    this.name.type = "button";
    this.name.setAttribute("aria-expanded", "false");
    this.name.setAttribute("aria-controls", this.more.id);
    this.name.addEventListener("click", () => {
      this.more.hidden = !this.more.hidden;
      this.name.setAttribute("aria-expanded", String(!this.more.hidden));
    });
    this.host = element("div", null, "faint small");
    this.band = element("canvas", null, "band");
    this.band.width = 256;
    this.band.height = 26;
    this.band.hidden = true;
    this.waits = element("div", null, "small");
    this.cells = HEADS.map((name) => element("td", null, name.startsWith(">") ? "number" : ""));
    this.cells[0].append(this.name, this.host);
    this.cells[4].append(this.band, this.waits);
    this.cells[0].className = "name";
    this.line.append(...this.cells);
    this.facts = element("dl");
    this.trace = element("pre");
    const all = element("td");
    all.colSpan = HEADS.length;
    all.append(this.facts, this.trace);
    this.more.append(all);
  }

  show(found) {
    const isRunning = found.state === "running";
    set(this.name, found.name);
    set(this.host, found.host ? `${found.host}, executor ${found.executor}` : "");
    set(this.cells[1], isRunning ? "ACTIVE" : found.state.toUpperCase());
    this.cells[1].className = isRunning ? "good" : found.state === "idle" ? "" : "bad";
    set(this.cells[2], count(found.recordsPerSecond));
    set(this.cells[3], found.limitPerSecond === null ? "no limit" : `${count(found.limitPerSecond)} (${found.limitBy})`);
    set(this.waits, found.waitsFor ?? (isRunning ? "not known yet" : ""));
    set(this.cells[5], Number.isFinite(found.lagMs) ? duration(found.lagMs) : count(found.lagRecords));
    set(this.cells[6], count(found.discardedRecords));
    set(this.cells[7], wrong(found));
    this.cells[7].className = found.troubles.length ? "wrong bad" : "wrong faint";
    const facts = factsOf(found);
    const key = JSON.stringify(facts);
    if (key !== this.key) this.facts.replaceChildren(...facts.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
    this.key = key;
    set(this.trace, found.lastErrorDetail ?? "");
    this.trace.hidden = !found.lastErrorDetail;
  }

  draw(waits, step, colour) {
    this.band.hidden = !waits || !waits.length;
    if (this.band.hidden) return;
    const drawing = this.band.getContext("2d");
    drawing.clearRect(0, 0, this.band.width, this.band.height);
    const first = waits[0][0];
    const span = Math.max(LEAST_SPAN_S, waits[waits.length - 1][0] - first + step);
    const width = Math.max(1, (step * this.band.width) / span) + 0.5;
    for (const row of waits) {
      const x = ((row[0] - first) / span) * this.band.width;
      let y = this.band.height;
      WAITS.forEach((name, at) => {
        const height = ((row[at + 1] ?? 0) / 100) * this.band.height;
        drawing.fillStyle = colour(`--${name}`);
        drawing.fillRect(x, y - height, width, height);
        y -= height;
      });
    }
  }
}

function set(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function isWrong(found) {
  return !["running", "idle"].includes(found.state) || found.troubles.length > 0;
}

function wrong(found) {
  if (found.troubles.length) return found.troubles.join("; ");
  return found.lastError ? `${time(found.lastErrorMs)}: ${found.lastError.split("\n")[0].slice(0, 200)}` : "";
}

function factsOf(found) {
  const facts = [["Starts", count(found.attempts)], ["Records so far", `${count(found.records)} in ${count(found.blocks)} blocks`]];
  if (found.queuedBlocks !== undefined) facts.push(["On their way", `${count(found.openRecords)} open records, ${found.queuedBlocks} blocks for the log, ${found.storedBlocks} for the driver`]);
  if (found.droppedRecords) facts.push(["Dropped", `${count(found.droppedRecords)} records, as they came too fast`]);
  if (found.latencyMs) facts.push(["Acknowledged after", `${duration(found.latencyMs[0])} (p50), ${duration(found.latencyMs[1])} (p99)`]);
  if (found.log) facts.push(["Log", `${count(found.log.bytes / 1048576)} MiB in ${found.log.segments} segments, a sync ${duration(found.log.syncMs)}`]);
  if (found.addresses.length) facts.push(["Listens at", found.addresses.join(", ")]);
  if (found.position) facts.push(["Position", found.position]);
  if (found.lastError) facts.push(["Last error", `${time(found.lastErrorMs)}: ${found.lastError}`]);
  return facts;
}

export class Receivers {
  constructor(place) {
    const key = element("p", null, "keys");
    for (const name of WAITS) key.append(element("span", null, `key ${name}`), element("span", name));
    this.caption = element("caption");
    this.body = element("tbody");
    const made = element("table");
    made.append(this.caption, headOf(HEADS), this.body);
    this.all = element("div", null, "tall");
    this.all.append(made);
    this.places = element("div");
    this.rows = new Map();
    place.replaceChildren(key, this.all, this.places);
  }

  /* Those with whom something is wrong come first. */
  show(receivers) {
    const active = receivers.filter((found) => found.state === "running").length;
    set(this.caption, `${active} / ${receivers.length} active`);
    const ordered = [...receivers.filter(isWrong), ...receivers.filter((found) => !isWrong(found))];
    const wanted = ordered.map((found) => {
      if (!this.rows.has(found.stream)) this.rows.set(found.stream, new Row(found.stream));
      const row = this.rows.get(found.stream);
      row.show(found);
      return row;
    });
    const order = wanted.map((row) => row.stream).join();
    if (order !== this.order) this.body.replaceChildren(...wanted.flatMap((row) => [row.line, row.more]));
    this.order = order;
    this.showPlaces(receivers);
  }

  showPlaces(receivers) {
    const places = new Map();
    for (const found of receivers.filter((each) => each.host)) {
      const place = `${found.host}, executor ${found.executor}`;
      places.set(place, [...(places.get(place) ?? []), found]);
    }
    if (places.size < 2) {
      // Each receiver's row says it already.
      this.places.replaceChildren();
      return;
    }
    const rows = [...places].map(([place, there]) => {
      const more = there.length > NAMED ? ` and ${there.length - NAMED} more` : "";
      return [place, there.slice(0, NAMED).map((found) => found.name).join(", ") + more, count(there.reduce((sum, found) => sum + (found.recordsPerSecond ?? 0), 0))];
    });
    this.places.replaceChildren(table("Hosts with receivers", ["Host", "Receivers", ">Records/sec"], rows));
  }

  drawBands(streams, step, colour) {
    const known = new Map();
    const remembered = (name) => known.get(name) ?? known.set(name, colour(name)).get(name);
    for (const row of this.rows.values()) row.draw(streams[row.stream]?.waits, step, remembered);
  }
}
