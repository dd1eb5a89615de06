"use strict";
/* What the page is made of. Everything goes into it as text, never as markup. */

export function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export function count(value) {
  if (value === null || value === undefined) return "";
  return Math.round(value).toLocaleString("en");
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "-";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${(ms / 60000).toFixed(1)} min`;
}

export function time(ms) {
  return ms === null || ms === undefined ? "" : new Date(ms).toLocaleString();
}

/* The head of a table; a name that begins with > is of a column of numbers. */
export function headOf(heads) {
  const head = element("tr");
  for (const name of heads) {
    const cell = element("th", name.replace(/^>/, ""), name.startsWith(">") ? "number" : "");
    cell.scope = "col";
    head.append(cell);
  }
  const top = element("thead");
  top.append(head);
  return top;
}

export function table(caption, heads, rows) {
  const made = element("table");
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, at) => {
      const made = element("td", null, heads[at].startsWith(">") ? "number" : "");
      made.append(cell ?? "");
      line.append(made);
    });
    body.append(line);
  }
  if (caption) made.append(element("caption", caption));
  made.append(headOf(heads), body);
  return made;
}

export function unfolding(summary, text) {
  if (!text) return element("span", summary);
  const made = element("details");
  made.append(element("summary", summary), element("pre", text));
  return made;
}
