"use strict";
/* A timeline as SVG: lines over time, and beside them how often the last batches had how much. */

const HEIGHT = 170;
const LEFT = 62;
const TOP = 8;
const BOTTOM = 22;
const STRIP = 74;
const MOST_BARS = 12;
const LEAST_SPAN_S = 60;
const TIME_STEPS_S = [5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600];

/* The smallest of 1, 2, 5, 10, 20 … that is not below a value, in minutes where it is of minutes. */
function round(value, isDuration) {
  if (isDuration && value > 30000) return 60000 * round(value / 60000);
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value) ?? 10 * power;
}

function clock(second, step) {
  const options = { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
  return new Date(second * 1000).toLocaleTimeString([], { ...options, hour12: false });
}

export class Timeline {
  /* `text` says a value; `isDuration`: values are milliseconds. */
  constructor(title, unit, text, isDuration) {
    this.text = text;
    this.isDuration = isDuration;
    this.title = title;
    this.unit = unit;
    this.place = document.getElementById("timeline").content.firstElementChild.cloneNode(true);
    const part = (name) => this.place.querySelector(name);
    part("h3").prepend(`${title} (${unit})`);
    this.now = part("output");
    this.svg = part("svg");
    this.legend = part("ul");
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.place);
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
  }

  /* `lines` are { name, kind, values }, of which `kind` is a class that has a colour. */
  show(times, step, lines, mark, batches) {
    Object.assign(this, { times, step, lines, mark, batches });
    const known = lines[0].values.filter((value) => value !== null);
    const last = known.length ? this.text(known[known.length - 1]) : "nothing yet";
    this.svg.setAttribute("aria-label", `${this.title}, ${this.unit}: now ${last}`);
    this.draw();
  }

  draw() {
    const { times, lines } = this;
    if (!times || !times.length) return;
    const width = Math.max(280, this.place.clientWidth);
    const strip = this.batches.length ? STRIP : 0;
    this.right = width - 8 - strip;
    this.last = times[times.length - 1];
    this.first = Math.min(times[0], this.last - LEAST_SPAN_S);
    let most = Math.max(this.mark ?? 0, 1, ...this.batches);
    for (const { values } of lines) for (const value of values) if (value > most) most = value;
    const step = Math.max(1, round(most / 4, this.isDuration));
    this.most = step * Math.ceil(most / step);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.setAttribute("height", HEIGHT);
    const parts = [];
    for (let value = 0; value <= this.most; value += step) {
      const y = this.y(value);
      parts.push(this.made("line", { class: "grid", x1: LEFT, x2: this.right, y1: y, y2: y }));
      parts.push(this.made("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.text(value)));
    }
    parts.push(...this.timeTicks());
    if (this.mark) {
      const y = this.y(this.mark);
      parts.push(this.made("line", { class: "mark", x1: LEFT, x2: this.right, y1: y, y2: y }));
    }
    // The first one, of all of it, lies over the others.
    for (const line of lines.slice().reverse()) parts.push(this.made("path", { class: line.kind, d: this.path(line.values) }));
    if (strip) parts.push(...this.bars(width));
    this.cursor = this.made("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    this.svg.replaceChildren(...parts, this.cursor);
    this.point(this.pointed ?? null);
  }

  made(name, attributes, text) {
    const made = document.createElementNS(this.svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  x(second) {
    return LEFT + ((second - this.first) / (this.last - this.first)) * (this.right - LEFT);
  }

  y(value) {
    return HEIGHT - BOTTOM - (value / this.most) * (HEIGHT - BOTTOM - TOP);
  }

  timeTicks() {
    const span = this.last - this.first;
    const room = Math.max(1, Math.floor((this.right - LEFT) / 64));
    const step = TIME_STEPS_S.find((each) => span / each <= room) ?? TIME_STEPS_S[TIME_STEPS_S.length - 1];
    // Whole hours are those of this place.
    const zone = -60 * new Date(this.last * 1000).getTimezoneOffset();
    const found = [];
    for (let at = Math.ceil((this.first + zone) / step) * step - zone; at <= this.last; at += step) {
      const x = this.x(at);
      found.push(this.made("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
      if (x > LEFT + 20 && x < this.right - 16) found.push(this.made("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": "middle" }, clock(at, step)));
    }
    return found;
  }

  /* What is not known, and a time of which nothing is known, is a gap. */
  path(values) {
    let found = "";
    let before = null;
    this.times.forEach((second, at) => {
      const value = values[at];
      if (value === null || value === undefined) {
        before = null;
        return;
      }
      const goesOn = before !== null && second - before <= 2.5 * this.step;
      // A point alone is a dot.
      found += `${goesOn ? "L" : "M"}${this.x(second).toFixed(1)} ${this.y(value).toFixed(1)}${goesOn ? "" : "h.1"}`;
      before = second;
    });
    return found;
  }

  bars(width) {
    const step = Math.max(1, round(this.most / MOST_BARS, this.isDuration));
    const counts = new Array(Math.ceil(this.most / step)).fill(0);
    for (const found of this.batches) counts[Math.min(counts.length - 1, Math.floor(found / step))] += 1;
    const full = Math.max(...counts);
    const left = this.right + 10;
    const bars = counts.flatMap((count, at) => {
      if (!count) return [];
      const top = this.y(Math.min(this.most, (at + 1) * step));
      const bar = this.made("rect", { class: "bar", x: left, y: top + 0.5, width: Math.max(2, (count / full) * (width - left - 4)), height: Math.max(1, this.y(at * step) - top - 1) });
      bar.append(this.made("title", {}, `${this.text(at * step)} to ${this.text((at + 1) * step)}: ${count} of the last ${this.batches.length} batches`));
      return [bar];
    });
    const label = this.made("text", { class: "tick", x: left, y: HEIGHT - 6 }, `last ${this.batches.length}`);
    label.append(this.made("title", {}, "How many of the last batches had how much"));
    return [...bars, label];
  }

  /* Says the values at a place of the chart, or the last ones. */
  point(x) {
    this.pointed = x;
    if (!this.cursor) return;
    const isInside = x !== null && x >= LEFT && x <= this.right;
    this.cursor.style.display = isInside ? "" : "none";
    let at = this.times.length - 1;
    if (isInside) {
      const second = this.first + ((x - LEFT) / (this.right - LEFT)) * (this.last - this.first);
      at = this.times.reduce((best, each, index) => (Math.abs(each - second) < Math.abs(this.times[best] - second) ? index : best), 0);
      this.cursor.setAttribute("x1", this.x(this.times[at]));
      this.cursor.setAttribute("x2", this.x(this.times[at]));
    }
    const said = (values) => (values[at] === null || values[at] === undefined ? "-" : this.text(values[at]));
    this.now.textContent = `${isInside ? `${clock(this.times[at], 1)}: ` : ""}${said(this.lines[0].values)}`;
    const items = this.lines.length < 2 ? [] : this.lines.map((line) => {
      const item = document.createElement("li");
      const key = document.createElement("span");
      key.className = `key ${line.kind}`;
      item.append(key, `${line.name} ${said(line.values)}`);
      return item;
    });
    if (this.more > 0) {
      const rest = document.createElement("li");
      rest.textContent = `and ${this.more} more streams`;
      items.push(rest);
    }
    this.legend.replaceChildren(...items);
  }
}
