// The sections below the chart: each is a table of a part of an answer of the API.

import { kinds } from './ask.js';
import { bytes, clock, count, percent, rate, span, total } from './format.js';
import { fill, list, write } from './table.js';

const mostRules = 40;
const mostTalkers = 12;
const mostAttacks = 10;
const mostEvents = 100;

const byID = (id) => document.getElementById(id);

/** section shows a section with a table only when the table has rows. */
function section(id, columns, rows) {
  fill(byID(id), columns, rows);
  byID(id).closest('section').hidden = rows.length === 0;
}

const signs = { pass: '✓ pass', drop: '✕ drop', reject: '✕ reject', truncate: '✂ truncate' };

function verdict(r) {
  return r.observe ? `(${r.verdict}) counts only` : signs[r.verdict] ?? r.verdict;
}

const verdictStyle = (r) => (r.observe ? '' : { pass: 'good', drop: 'bad', reject: 'bad', truncate: 'bad' }[r.verdict] ?? '');

/** rules shows what decided, with totals of a status and rates of a step. */
export function rules(status, step) {
  const rates = new Map((step?.reasons ?? []).map((r) => [r.name, r]));
  const per = (r, of) => (rates.has(r.name) ? of(rates.get(r.name)) / step.seconds : 0);
  const all = [...status.rules.filter((r) => r.line || r.packets), status.default, ...status.checks, status.not_ip]
    .filter((r) => r.line || r.packets || r === status.default);
  const busy = [...all].sort((a, b) => per(b, (i) => i.packets) - per(a, (i) => i.packets) || b.packets - a.packets);
  fill(byID('rules'), [
    { head: 'rule', text: (r) => (r.merged > 1 ? `${r.name} (and ${count(r.merged - 1)} more)` : r.name) },
    { head: 'verdict', text: verdict, style: verdictStyle },
    { head: 'stage', wide: true, text: (r) => r.stage },
    { head: 'packets/s', number: true, text: (r) => (step ? rate(per(r, (i) => i.packets)) : '–') },
    { head: 'bits/s', number: true, wide: true, text: (r) => (step ? rate(per(r, (i) => 8 * i.bytes)) : '–') },
    { head: 'packets', number: true, text: (r) => (r.uncounted ? '–' : total(r.packets)) },
    { head: 'bytes', number: true, wide: true, text: (r) => (r.uncounted ? '–' : bytes(r.bytes)) },
  ], busy.slice(0, mostRules));
  write(byID('rules-more'), busy.length > mostRules ? `${count(busy.length - mostRules)} more decided less: floodwall status lists them.` : '');
}

/** temporary shows the rules of a status that stand before those of the policy for a time. */
export function temporary(status) {
  section('temporary', [
    { head: 'temporary rule', text: (r) => `${r.name}\n${r.temporary.rule.replace(/^\{(?:name: [^,]*, )?(.*)\}$/, '$1')}` },
    { head: 'verdict', words: true, text: verdict, style: verdictStyle },
    { head: 'until', words: true, text: (r) => clock(new Date(r.temporary.until)) },
    { head: 'by', wide: true, words: true, text: (r) => r.temporary.owner },
    { head: 'packets', number: true, text: (r) => total(r.packets) },
  ], status.rules.filter((r) => r.temporary));
}

/** details shows temporary rules, devices, protections, sets and limits of a status. */
export function details(status) {
  temporary(status);
  section('devices', [
    { head: 'device', text: (d) => d.name },
    { head: 'stage', text: (d) => d.stage },
    { head: 'mode', words: true, text: mode },
    { head: 'generation', number: true, text: (d) => d.generation },
  ], status.devices ?? []);
  section('protections', [
    { head: 'service', text: (p) => p.service },
    { head: 'cookies', text: cookies, style: (p) => (p.refused ? 'bad' : '') },
    { head: 'mode', wide: true, text: (p) => `${p.mode}, ${p.method}` },
    { head: 'connections', number: true, text: (p) => (p.flows.capacity ? `${count(p.flows.entries)} of ${count(p.flows.capacity)}` : '–') },
  ], status.protections ?? []);
  const full = (used, capacity) => (capacity ? used / capacity : undefined);
  section('sets', [
    { head: 'set', text: (s) => s.name },
    { head: 'kind', wide: true, text: (s) => s.kind },
    { head: 'entries', number: true, text: (s) => (s.capacity ? `${count(s.entries)} of ${count(s.capacity)}` : count(s.entries)) },
    { head: 'full', number: true, share: (s) => grows(s) && full(s.entries, s.capacity), text: (s) => (s.capacity ? percent(s.entries / s.capacity) : '–') },
  ].map(noShare), status.sets);
  section('limits', [
    { head: 'limit of', text: (l) => `${l.name}\n${l.limit.replace(/^\{(.*)\}$/, '$1')}` },
    { head: 'prefixes', number: true, text: (l) => (l.capacity ? `${count(l.debts)} of ${count(l.capacity)}` : '–') },
    { head: 'full', number: true, share: (l) => full(l.debts, l.capacity), text: (l) => (l.capacity ? percent(l.debts / l.capacity) : '–') },
    { head: 'forgotten', number: true, wide: true, text: (l) => count(l.evictions) },
  ], status.limits ?? []);
}

/** mode is the mode of a device. If a flood changes it, the text also has the time of the last change. */
function mode(d) {
  if (!d.by_flood) return d.mode || '–';
  return `${d.mode} since ${clock(new Date(d.since))}, ${d.mode === 'tc' ? 'native in a flood' : 'tc without a flood'}`;
}

// A set that is written in the policy is full by nature, which is no news.
const grows = (s) => s.kind === 'dynamic' || s.kind === 'live';
const noShare = (c) => (c.share ? { ...c, share: (s) => c.share(s) || undefined } : c);

function cookies(p) {
  if (p.refused) return `refused for ${span(p.refused)}`;
  if (!p.active) return 'no';
  return p.always ? 'always' : `yes, for ${span(p.left)}`;
}

/** feeds shows lists that are fetched, or read from databases. */
export function feeds(answer) {
  section('feeds', [
    { head: 'set', text: (f) => f.set },
    { head: 'state', text: (f) => (f.why ? `${f.state}: ${f.why}` : f.state), style: (f) => (f.state === 'ok' ? 'good' : 'bad') },
    { head: 'age', number: true, text: (f) => (f.checked ? span(f.age ?? 0) : '–') },
    { head: 'entries', number: true, text: (f) => count(f.entries) },
  ], answer.feeds);
}

/** attacks shows the latest reports of attacks. */
export function attacks(answer) {
  const all = (a) => a.passed.packets + a.dropped.packets;
  section('attacks', [
    { head: 'attack', text: (a) => `${a.id}\n${a.vectors.join(', ')}${a.at ? ` at ${a.at[0]}` : ''}` },
    { head: 'from', wide: true, words: true, text: (a) => clock(new Date(a.started)) },
    { head: 'for', words: true, text: (a) => (a.ended ? span((Date.parse(a.ended) - Date.parse(a.started)) / 1000) : '⚠ goes on'), style: (a) => (a.ended ? '' : 'bad') },
    { head: 'peak/s', number: true, text: (a) => rate(a.peak.packets) },
    { head: 'dropped', number: true, text: (a) => (all(a) ? percent(a.dropped.packets / all(a)) : '–') },
  ], answer.attacks.slice(0, mostAttacks));
  const lacks = answer.learning?.lacks ?? '';
  byID('attacks-learning').textContent = lacks && `auto adds no rule yet: ${lacks}`;
  if (lacks) byID('attacks').closest('section').hidden = false;
}

/** talkers shows who or what comes most, by samples. */
export function talkers(top, by) {
  const samples = top?.samples;
  const rows = samples ? (by === 'sources' || by === 'destinations' ? samples[by] : samples.fields[by]) ?? [] : [];
  fill(byID('talkers'), [
    { head: byID('talkers-by').selectedOptions[0].text, text: (t) => t.key },
    { head: 'packets/s', number: true, text: (t) => rate(t.packets) },
    { head: 'share', number: true, text: (t) => percent(t.share) },
    ...(samples?.verdicts ? [{ head: 'dropped', number: true, text: (t) => percent(t.dropped ?? 0) }] : []),
    { head: 'error', number: true, wide: true, text: (t) => `±${Math.min(100, Math.round(t.error))}%` },
  ], rows.slice(0, mostTalkers));
  byID('talkers').hidden = rows.length === 0;
  write(byID('talkers-of'), talkersNote(top, rows));
}

function talkersNote(top, rows) {
  if (!top) return 'Asking …';
  if (!top.samples) return top.warning ? `${capital(top.warning)}. The rates of rules above are exact all the same.` : 'No samples.';
  const s = top.samples;
  if (s.packets === 0) return `No packet was sampled in ${top.seconds.toFixed(1)} s.`;
  const share = s.one_in > 1 ? `, 1 packet in ${count(s.one_in)}` : '';
  const of = `Of ${s.verdicts ? 'all that comes' : 'what XDP passes'}, by ${count(s.packets)} samples in ${top.seconds.toFixed(1)} s${share}.`;
  return rows.length ? of : `${of} Nothing has 1% of them.`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** isRare tells changes of what runs from bans, of which there may be thousands a second. */
export const isRare = (event) => event.kind === 'change' && !/^(un)?block /.test(event.text);

/** Events keeps the newest events, and writes them at most once a second. */
export class Events {
  #all = [];
  #due = false;

  begin() {
    this.#all = [];
    this.#later();
  }

  add(event) {
    this.#all.push(event);
    if (this.#all.length > mostEvents) this.#all.shift();
    this.#later();
  }

  /** changes are the times, in milliseconds, at which somebody changed what runs. */
  changes() {
    return this.#all.filter(isRare).map((e) => Date.parse(e.time));
  }

  #later() {
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => {
      this.#due = false;
      list(byID('events'), this.#all.toReversed().map((e) => `${clock(new Date(e.time))}  ${kinds[e.kind] ?? e.kind}: ${e.text}`));
      byID('events-none').hidden = this.#all.length > 0;
    }, 250);
  }
}
