// The live page: asks the API, and shows what it answers.

import { Asker } from './ask.js';
import { Chart, tiles } from './chart.js';
import { clock, span, zone } from './format.js';
import { attacks, details, Events, feeds, isRare, rules, talkers } from './sections.js';
import { list, write } from './table.js';

const kept = 600_000; // milliseconds of steps
const lostAfter = 3_000; // milliseconds without an answer; a single one may be late on a busy host

const byID = (id) => document.getElementById(id);

const page = {
  steps: [], // of /v1/series
  stepped: 0, // when the last of them came, by performance.now
  status: null, // the last one; null when nothing runs
  problem: '', // why there is no status
  at: 0, // when it came, by performance.now
  top: null,
  paths: null, // of the API, when they are known
  heard: null, // a Date: the last answer
  heardAt: 0, // when it came, by performance.now: the clock may be set
  lost: null, // a Date: since then there is none
};

const chart = new Chart({
  chart: byID('chart'), legend: byID('legend'), by: byID('chart-by'), unit: byID('chart-unit'), details: byID('chart-details'), table: byID('chart-table'),
});
const events = new Events();

function heard() {
  page.heard = new Date();
  page.heardAt = performance.now();
  if (!page.lost) return;
  page.lost = null;
  asker.hurry(); // what came meanwhile
  state();
}

function silent() {
  if (page.lost || performance.now() - page.heardAt < lostAfter) return;
  page.lost = page.heard ?? new Date();
  state();
  figures();
}

const asker = new Asker(heard, silent);

asker.every(2, () => `v1/series?after=${encodeURIComponent(page.steps.at(-1)?.time ?? '')}`, (answer) => {
  if (behind(answer.steps, page.steps)) page.steps = []; // the clock of the host was set back: the answer has all steps by the new time
  const known = new Set(page.steps.map((s) => s.time));
  const added = answer.steps.filter((s) => !known.has(s.time));
  if (added.length) page.stepped = performance.now();
  page.steps = [...page.steps, ...added].sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
  page.steps = page.steps.filter((s) => Date.parse(s.time) > end() - kept);
  figures();
});

asker.every(4, () => 'v1/status', (status) => {
  const first = !page.status;
  Object.assign(page, { status, problem: '', at: performance.now() });
  state();
  details(status);
  figures();
  if (first) asker.hurry(); // what waits for it
}, (failure) => {
  Object.assign(page, { status: null, problem: failure.error });
  state();
});

asker.every(15, () => page.status?.sets.some((s) => s.kind === 'live') && 'v1/feeds', feeds);

asker.every(4, () => page.status && 'v1/top', (top) => {
  page.top = top;
  talkers(top, byID('talkers-by').value);
});

asker.every(300, () => 'v1/openapi.json', (document) => {
  const first = !page.paths;
  page.paths = document.paths;
  if (first) asker.hurry();
});

asker.every(10, () => page.paths?.['/v1/attacks'] && 'v1/attacks', attacks);

asker.follow(() => events.begin(), (event) => {
  events.add(event);
  if (isRare(event)) asker.hurry();
});

function figures() {
  const step = page.steps.at(-1);
  const now = step && !page.lost && performance.now() - page.stepped < 4000 * step.seconds ? step : null; // else it is of the past
  tiles(page.steps, now, byID);
  chart.show(page.steps, end(), [...events.changes(), ...generations(), ...moves()]);
  if (page.status) rules(page.status, now);
}

/** end is the present by the clock of the daemon's host, in milliseconds: this browser may be on another host. */
function end() {
  const last = page.steps.at(-1);
  return last ? Date.parse(last.time) + performance.now() - page.stepped : Date.now();
}

/** behind reports whether some steps end before others do. */
function behind(steps, others) {
  return steps.length > 0 && others.length > 0 && Date.parse(steps.at(-1).time) < Date.parse(others.at(-1).time);
}

/** generations are the times, in milliseconds, at which another generation began to run. */
function generations() {
  return page.steps.filter((s, i) => i > 0 && s.generation !== page.steps[i - 1].generation).map((s) => Date.parse(s.time) - 1000 * s.seconds);
}

/** moves are the times, in milliseconds, at which the program last moved between tc and XDP. */
function moves() {
  return (page.status?.devices ?? []).filter((d) => d.by_flood).map((d) => Date.parse(d.since));
}

/** state shows whether the policy is in force. Only its word is announced, not the seconds. */
function state() {
  const [kind, sign, word, text] = verdict();
  byID('state').dataset.kind = kind;
  write(byID('state-sign'), sign);
  write(byID('state-word'), word);
  write(byID('state-text'), text);
  const s = page.status;
  list(byID('state-open'), page.lost ? [] : s?.open ?? []);
  list(byID('state-warnings'), page.lost ? [] : [...(s?.warnings ?? []).map((w) => `⚠ ${w}`), ...(s?.ports ?? []).map((p) => p.text)]);
  write(byID('policy'), s ? `${s.policy}, generation ${s.generation}, target ${s.target}` : '');
  document.title = `${word} – Floodwall`;
}

function verdict() {
  const s = page.status;
  if (page.lost) {
    return ['lost', '?', 'No answer', `The daemon has not answered since ${clock(page.lost)}, for ${span((performance.now() - page.heardAt) / 1000)}. ` +
      'What the policy filters goes on in the kernel. Either the daemon has ended, or no policy with this address runs. This page asks again by itself.'];
  }
  if (!s && !page.problem) return ['', '…', 'Asking the daemon', ''];
  if (!s) return ['bad', '✕', 'Nothing in force', page.problem];
  const since = `Generation ${s.generation} was applied at ${clock(new Date(s.applied))}.`;
  if (s.open?.length) return ['bad', '✕', 'Not in force', `The kernel lacks a part of the policy. ${since}`];
  if (s.trial) {
    const left = Math.max(0, s.trial.left - (performance.now() - page.at) / 1000);
    const back = s.trial.returns_to ? `Generation ${s.trial.returns_to} returns` : 'Nothing is filtered any more';
    return ['trial', '◐', 'On trial', `${back} in ${span(left)} unless somebody confirms. ${since}`];
  }
  return ['good', '✓', 'In force', since];
}

setInterval(() => {
  if (document.hidden) return;
  if (page.lost || page.status?.trial) state();
  if (page.lost) figures();
}, 1000);

byID('talkers-by').addEventListener('change', () => talkers(page.top, byID('talkers-by').value));

const pause = byID('pause');
const paused = () => pause.getAttribute('aria-pressed') === 'true';

function follow() {
  if (document.hidden || paused()) asker.stop();
  else asker.start();
}

pause.addEventListener('click', () => {
  pause.setAttribute('aria-pressed', String(!paused()));
  write(pause, paused() ? 'Go on' : 'Pause');
  follow();
});
document.addEventListener('visibilitychange', follow);
write(byID('zone'), `, ${zone()}`);
follow();
