// The slices as a row of boxes, the newest last: what is live comes from Redis, what has landed from the instances that flushed it.
import { byId, count, fill, length, make, plural, time, write } from "./dom.js";

const SHOWN_MAX = 40;
const RANK = { open: 0, sealed: 1, flushing: 2 };

// By id. The page remembers more than a snapshot says.
const known = new Map();

const live = (slices) => {
  const all = new Map();
  for (const { id, entries, state } of slices) {
    const one = all.get(id) || { id, entries: 0, state };
    one.entries += entries;
    if (RANK[state] > RANK[one.state]) one.state = state;
    all.set(id, one);
  }
  return all;
};

const merge = ({ slices, landings }) => {
  const alive = live(slices);
  const landed = new Map();
  // The newest first: what was said later counts.
  for (const landing of landings) if (!landed.has(landing.slice)) landed.set(landing.slice, landing);
  for (const [id, one] of alive) {
    const landing = landed.get(id);
    const failed = landing && landing.error && one.state !== "flushing";
    known.set(id, { ...one, state: failed ? "failed" : one.state, error: failed ? landing.error : null });
  }
  for (const [id, landing] of landed) {
    if (alive.has(id)) continue;
    known.set(id, {
      id,
      state: landing.error ? "failed" : "flushed",
      entries: landing.entries,
      quarantined: landing.quarantined,
      took: landing.duration_ms,
      error: landing.error,
    });
  }
  // It is gone and nobody says how: another program flushed it.
  for (const [id, one] of known) if (!alive.has(id) && !landed.has(id) && one.state !== "flushed") known.set(id, { ...one, state: "flushed", error: null });
  const ids = [...known.keys()].sort((a, b) => a - b);
  for (const id of ids.slice(0, Math.max(0, ids.length - SHOWN_MAX))) known.delete(id);
  // What is open besides the newest takes nothing any more.
  const newest = ids[ids.length - 1];
  const shown = ids.slice(-SHOWN_MAX).map((id) => known.get(id));
  return shown.map((one) => (one.state === "open" && one.id !== newest ? { ...one, state: "over" } : one));
};

const WORDS = { open: "open", over: "over, not sealed yet", sealed: "sealed, waits", flushing: "being flushed", flushed: "flushed", failed: "failed" };

const box = ({ id, state, entries, quarantined, took, error }) => make("li", { className: state, title: error || "" },
  make("b", { textContent: time(id) }),
  make("span", { textContent: WORDS[state] }),
  make("span", { textContent: plural(entries, "entry", "entries") }),
  took === undefined ? null : make("span", { textContent: `in ${length(took)}` }),
  quarantined ? make("span", { className: "bad", textContent: `${count(quarantined)} in quarantine` }) : null,
  error ? make("span", { className: "bad", textContent: error }) : null);

export const showSlices = (snapshot) => {
  write(byId("slices-note"), `Each collects what is liked in ${snapshot.slice_seconds} seconds; then it is sealed and flushed into MySQL.`);
  const row = byId("slices");
  const boxes = merge(snapshot);
  const atEnd = row.scrollLeft + row.clientWidth >= row.scrollWidth - 20;
  const changed = fill(row, boxes, () => (boxes.length
    ? boxes.map(box)
    : [make("li", { className: "empty", textContent: "Nothing was liked lately." })]));
  if (changed && atEnd) row.scrollLeft = row.scrollWidth;
};
