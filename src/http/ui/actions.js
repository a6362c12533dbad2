// What one can do and ask: flush, compensate, verify, and close looks at a target or a user.
import { call, reason } from "./api.js";
import { byId, count, fill, length, make, moment, plural, time, write } from "./dom.js";

const flushed = ({ slices, entries, rows_changed: rows, quarantined, duration_ms: ms }) =>
  `${plural(slices, "slice", "slices")} with ${plural(entries, "entry", "entries")} landed, ${plural(rows, "row", "rows")} changed, ${count(quarantined)} to quarantine, in ${length(ms)}.`;

const ACTIONS = [
  {
    id: "flush",
    name: "Flush",
    text: "Carries everything accepted so far into MySQL.",
    path: "/admin/v1/flushes",
    progress: ({ entries }) => [`${count(entries)} operations are left`, null],
    done: (report) => [flushed(report), report.quarantined === 0],
  },
  {
    id: "compensate",
    name: "Compensate",
    text: "Looks for slices that were missed, flushes, and compares counts with rows.",
    path: "/admin/v1/compensations",
    progress: ({ entries }) => [`${count(entries)} operations are left`, null],
    done: ({ slices_adopted: adopted, audit, duration_ms: ms }) =>
      [`${plural(adopted, "slice", "slices")} adopted; ${plural(audit.differences_total, "difference", "differences")} in ${plural(audit.rows_seen, "row", "rows")} of ${plural(audit.targets_seen, "target", "targets")}, in ${length(ms)}.`, audit.differences_total === 0],
  },
  {
    id: "verify",
    name: "Verify",
    text: "Compares Redis and MySQL, and changes nothing.",
    path: "/admin/v1/verifications",
    progress: ({ verification: { rows_seen: seen, rows_estimate: all, residents_seen: residents } }) => (residents
      ? [`${plural(residents, "resident", "residents")} compared`, null]
      : [`${count(seen)} of about ${plural(all, "row", "rows")} compared`, all ? seen / all : null]),
    done: (found) => {
      const first = found.differences[0];
      const which = first ? ` First: ${first.place}, ${first.key}: ${first.found} instead of ${first.expected}.` : "";
      return [`${plural(found.differences_total, "difference", "differences")} in ${plural(found.rows, "row", "rows")}, ${plural(found.users, "user", "users")} and ${plural(found.counts, "count", "counts")} in Redis, in ${length(found.duration_ms)}.${which}`, found.differences_total === 0];
    },
  },
];

let snapshot = null;
const running = new Set();

// Shows how far what runs has come.
export const showProgress = (now) => {
  snapshot = now;
  for (const tick of running) tick();
};

const action = ({ id, name, text, path, progress, done }) => {
  const button = make("button", { type: "button", id, textContent: name });
  const bar = make("progress", { hidden: true, max: 1 });
  bar.setAttribute("aria-label", `${name}: progress`);
  const how = make("p", { className: "note" });
  const result = make("p", { id: `${id}-result` });
  result.setAttribute("role", "status");
  button.addEventListener("click", async () => {
    // Not `disabled`: that would take the focus away from whoever works by keyboard.
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    bar.hidden = false;
    result.className = "";
    write(result, `${name} is under way…`);
    const begun = performance.now();
    const tick = () => {
      const [words, part] = snapshot ? progress(snapshot) : ["", null];
      if (part === null) bar.removeAttribute("value"); else bar.value = part;
      write(how, `${words}; ${length(Math.round((performance.now() - begun) / 1000) * 1000)}`);
    };
    running.add(tick);
    tick();
    const answer = await call("POST", path);
    running.delete(tick);
    bar.hidden = true;
    write(how, "");
    const [words, good] = answer.ok ? done(answer.body) : [`${name} failed: ${reason(answer)}`, false];
    result.className = good ? "good" : "bad";
    write(result, words);
    button.removeAttribute("aria-disabled");
  });
  return make("div", {}, button, make("p", { className: "note", textContent: text }), bar, how, result);
};

const facts = (pairs) => make("dl", { className: "facts" }, ...pairs.flatMap(([name, value]) =>
  [make("dt", { textContent: name }), make("dd", { textContent: value })]));

const slice = (id) => (id === null ? "nothing" : `since the slice of ${time(id)}`);

const aboutTarget = (found) => {
  const resident = found.partitions.filter((part) => part.resident);
  const dirty = found.partitions.map((part) => part.dirty_slice).filter((id) => id !== null);
  const many = found.partitions.length > 1;
  const part = ({ partition, count: held, stored, resident: there, dirty_slice: since }) => make("tr", {},
    ...[count(partition), count(held), count(stored), there ? "yes" : "no", slice(since)].map((textContent) => make("td", { textContent })));
  const head = make("tr", {}, ...["partition", "count", "in MySQL", "resident", "unflushed"].map((textContent) => make("th", { scope: "col", textContent })));
  return [
    facts([
      ["Count", count(found.count)],
      ["In MySQL", count(found.stored)],
      ["Unflushed", found.unflushed === null ? "unknown" : `${found.unflushed > 0 ? "+" : ""}${count(found.unflushed)}${dirty.length ? `, ${slice(Math.min(...dirty))}` : ""}`],
      ["In Redis", resident.length === 0 ? "no" : resident.length === found.partitions.length ? "yes" : `in ${resident.length} of ${found.partitions.length} partitions`],
    ]),
    many ? make("div", { className: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...found.partitions.slice(0, 32).map(part)))) : null,
    make("h4", { textContent: "Newest likers, as of the last flush" }),
    found.likers.length
      ? make("ol", { className: "ranks" }, ...found.likers.map(({ user, liked_at: at }) => make("li", {}, `${user}, ${moment(at)}`)))
      : make("p", { className: "note", textContent: "Nobody." }),
  ].filter(Boolean);
};

const RESIDENCE = { complete: "yes, with all likes", partial: "yes, with the newest likes", no: "no" };

const aboutUser = (found) => [
  facts([
    ["In Redis", RESIDENCE[found.resident]],
    ["Targets held there", count(found.held)],
    ["Unflushed", slice(found.dirty_slice)],
    ["Partition", count(found.partition)],
  ]),
  make("h4", { textContent: "Newest likes" }),
  found.likes.length
    ? make("ol", { className: "ranks" }, ...found.likes.map(({ kind, id, liked_at: at }) => make("li", {}, `${kind}/${id}, ${moment(at)}`)))
    : make("p", { className: "note", textContent: "None." }),
  found.more ? make("p", { className: "note", textContent: "There are more." }) : null,
].filter(Boolean);

const look = async (place, path, about) => {
  write(place, "Looking…");
  const answer = await call("GET", path);
  place.shown = null;
  fill(place, answer, () => (answer.ok ? about(answer.body) : [make("p", { className: "bad", textContent: reason(answer) })]));
};

export const lookAtTarget = ({ kind, id }) => {
  byId("kind").value = kind;
  byId("id").value = id;
  byId("look-target").scrollIntoView({ block: "nearest" });
  return look(byId("target-found"), `/admin/v1/targets/${encodeURIComponent(kind)}/${encodeURIComponent(id)}`, aboutTarget);
};

export const startActions = () => {
  byId("actions").append(...ACTIONS.map(action));
  byId("look-target").addEventListener("submit", (event) => {
    event.preventDefault();
    lookAtTarget({ kind: byId("kind").value, id: byId("id").value });
  });
  byId("look-user").addEventListener("submit", (event) => {
    event.preventDefault();
    look(byId("user-found"), `/admin/v1/users/${encodeURIComponent(byId("user").value)}`, aboutUser);
  });
};
