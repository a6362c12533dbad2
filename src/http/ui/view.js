// What a snapshot says, but for charts and slices: the verdict, lists and tables.
import { byId, count, fill, length, make, moment, plural, rate, time, write } from "./dom.js";

const cells = (...texts) => make("tr", {}, ...texts.map((text) => (text instanceof Node ? make("td", {}, text) : make("td", { textContent: text }))));
const nothing = (columns, text) => [make("tr", {}, make("td", { colSpan: columns, className: "note", textContent: text }))];
const marked = (className, textContent) => make("span", { className, textContent });

const showVerdict = ({ well, problems }) => {
  const place = byId("verdict");
  fill(place, { well, problems }, () => {
    place.className = well === true ? "well" : well === false ? "unwell" : "";
    if (well === null) return [make("p", { textContent: "Looking…" })];
    if (well) return [make("p", {}, marked("good", "All is well."))];
    const one = ({ text, remedy, runbook }) => make("li", {}, make("strong", { textContent: text }), ` ${remedy} `,
      marked("note", `docs/runbook.md: “${runbook}”`));
    return [make("p", {}, marked("bad", problems.length === 1 ? "Something is wrong." : `${problems.length} things are wrong.`)), make("ul", {}, ...problems.map(one))];
  });
};

const showTargets = (id, targets, number, none, onTarget) => {
  fill(byId(id), targets, () => (targets.length
    ? targets.map((target) => {
      const button = make("button", { type: "button", textContent: `${target.kind}/${target.id}`, title: "Look at it closely" });
      button.addEventListener("click", () => onTarget(target));
      return make("li", {}, button, make("output", { textContent: number(target) }));
    })
    : [make("li", { className: "note", textContent: none })]));
};

const showInstances = ({ instances, lease, instance, at }) => {
  const now = Date.parse(at);
  const job = (one) => {
    if (one.id === lease) return "has the lease now";
    return one.flushed_at_ms ? `flushed ${length(Math.max(0, now - one.flushed_at_ms))} ago` : "none lately";
  };
  const rows = instances.map((one) => ({
    name: one.id === instance ? `${one.name} (this one)` : one.name,
    version: one.version,
    up: one.started_at ? length(Math.max(0, now - Date.parse(one.started_at))) : "–",
    rate: rate(one.per_second),
    silent: one.silent,
    heard: one.silent ? `silent for ${length(one.silent_ms)}` : "just now",
    job: job(one),
  }));
  fill(byId("instances"), rows, () => (rows.length
    ? rows.map((one) => cells(one.name, one.version, one.up, one.rate, one.silent ? marked("bad", one.heard) : one.heard, one.job))
    : nothing(6, "None was heard yet.")));
};

const health = (store, well) => (store === null ? "not asked yet" : store.ok ? marked("good", well) : marked("bad", store.problem));

const feed = (status) => {
  if (!status) return "not asked yet";
  if (status.state === "off") return "off";
  const text = `${status.state}, ${plural(status.backlog, "event waits", "events wait")}`;
  return status.state === "stopped" ? marked("bad", text) : text;
};

const showHealth = (snapshot) => {
  const { redis, database, stores_ms: ms, flush, quarantine, partitions } = snapshot;
  const both = redis && database && redis.ok && database.ok ? `, both asked in ${length(ms)}` : "";
  fill(byId("health"), [redis, database, both, flush, quarantine, snapshot.feed, partitions], () => [
    ["Redis", health(redis, `takes likes${both}`)],
    ["MySQL", health(database, "answers")],
    ["Flush", health(flush, "keeps up")],
    ["Quarantine", quarantine === null ? "not asked yet" : quarantine > 0 ? marked("bad", plural(quarantine, "operation", "operations")) : marked("good", "empty")],
    ["Change feed", feed(snapshot.feed)],
    ["Partitions", count(partitions)],
  ].flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", {}, value)]));
};

const showRuns = ({ landings, compensations, instances }) => {
  const names = new Map(instances.map(({ id, name }) => [id, name]));
  const flushes = landings.slice(0, 10).map((one) => ({ ...one, rises: undefined, by: names.get(one.instance) || "–" }));
  fill(byId("flushes"), flushes, () => (flushes.length
    ? flushes.map((one) => cells(time(one.finished_at_ms), time(one.slice),
      one.error ? marked("bad", one.error) : count(one.entries), count(one.rows_changed),
      one.quarantined ? marked("bad", count(one.quarantined)) : "0", length(one.duration_ms), one.by))
    : nothing(7, "None lately.")));
  fill(byId("compensations"), compensations, () => (compensations.length
    ? compensations.map((one) => cells(moment(one.started_at),
      one.finished_at ? length(Date.parse(one.finished_at) - Date.parse(one.started_at)) : "–",
      one.outcome === "failed" ? marked("bad", `failed: ${one.error}`) : one.outcome || "under way",
      count(one.slices_adopted), count(one.rows_pruned),
      one.differences ? marked("bad", count(one.differences)) : count(one.differences)))
    : nothing(6, "None yet.")));
};

const showKinds = ({ most_liked: most }) => {
  const kinds = [...new Set(most.map(({ kind }) => kind))];
  fill(byId("kinds"), kinds, () => kinds.map((value) => make("option", { value })));
};

export const show = (snapshot, onTarget) => {
  write(byId("version"), snapshot.version);
  showVerdict(snapshot.verdict);
  showTargets("most", snapshot.most_liked, (one) => count(one.count), "Nothing was flushed yet.", onTarget);
  showTargets("rising", snapshot.rising, (one) => `+${count(one.by)}`, "Nothing rose.", onTarget);
  showKinds(snapshot);
  showInstances(snapshot);
  showHealth(snapshot);
  showRuns(snapshot);
};
