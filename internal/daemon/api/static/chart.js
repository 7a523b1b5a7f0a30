// The chart of the past ten minutes, drawn by uPlot, with a legend and a table that say the same.

import { clock, percent, rate, short } from './format.js';
import { fill, write } from './table.js';

const shown = 600; // seconds
const most = 6; // rules that have a line of their own
const dashes = [[], [8, 4], [], [8, 4], [2, 3], [12, 3, 2, 3], [5, 5], [14, 6]]; // of each look: colour is not the only sign
const height = 240; // CSS pixels

/** Chart draws steps of /v1/series. */
export class Chart {
  #plot = null;
  #names = '';
  #steps = [];
  #end = 0; // seconds
  #marks = [];

  constructor(elements) {
    this.on = elements; // chart, legend, by, unit, details, table
    for (const select of [elements.by, elements.unit]) select.addEventListener('change', () => this.#draw());
    elements.details.addEventListener('toggle', () => this.#draw());
    document.addEventListener('theme', () => this.#renew());
    new ResizeObserver(() => this.#plot?.setSize(this.#size())).observe(elements.chart);
  }

  /** show draws these steps, the oldest first, up to a time, and a vertical line at each of some times, all in milliseconds. */
  show(steps, end, marks) {
    this.#steps = steps;
    this.#end = end / 1000;
    this.#marks = marks;
    this.#draw();
  }

  #size() {
    return { width: this.on.chart.clientWidth, height };
  }

  #renew() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#draw();
  }

  #draw() {
    const inBits = this.on.unit.value === 'bits';
    const of = inBits ? (a) => 8 * a.bytes : (a) => a.packets;
    const lines = this.on.by.value === 'rule' ? byRule(this.#steps, of) : byVerdict(of);
    const unit = inBits ? 'bits/s' : 'packets/s';
    const data = columns(this.#steps, lines);
    this.#legend(lines, data);
    const names = lines.map((l) => l.name).join('\n') + unit;
    if (this.#plot && this.#names === names) {
      this.#plot.setData(data);
    } else {
      this.#plot?.destroy();
      this.#plot = this.#make(lines, data);
      this.#names = names;
    }
    this.#describe(lines, data, unit);
    if (this.on.details.open) this.#table(lines, data, unit);
  }

  #make(lines, data) {
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('grid'), width: 1 }, ticks: { stroke: colour('grid'), width: 1 }, font: '12px system-ui, sans-serif' };
    const series = lines.map((line, i) => ({
      label: line.name, stroke: colour(`line-${line.look}`), width: 2, dash: dashes[line.look], points: { show: false }, spanGaps: false,
      fill: i === 0 && lines.length === 1 ? colour('grid') : undefined,
    }));
    return new uPlot({
      ...this.#size(), series: [{}, ...series], legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { range: () => [this.#end - shown, this.#end] }, y: { range: (u, low, high) => [0, Math.max(10, high * 1.1)] } },
      axes: [
        { ...axis, values: (u, at) => at.map((t) => clock(new Date(1000 * t)).slice(-8, -3)), incrs: [60, 120, 300], space: 45 },
        { ...axis, values: (u, at) => at.map(short), size: 52 },
      ],
      hooks: { draw: [(u) => this.#mark(u, axis.stroke)], setCursor: [(u) => this.#point(u)] },
    }, data, this.on.chart);
  }

  #mark(u, stroke) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.setLineDash([3, 5]);
    for (const at of this.#marks) {
      const x = u.valToPos(at / 1000, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // The legend has each line with its value where the pointer is, or now.
  #legend(lines, data) {
    const list = this.on.legend;
    while (list.children.length > lines.length) list.lastChild.remove();
    lines.forEach((line, i) => {
      const item = list.children[i] ?? list.appendChild(entry());
      item.querySelector('svg').setAttribute('class', `line-${line.look}`);
      item.querySelector('line').setAttribute('stroke-dasharray', dashes[line.look].join(' '));
      write(item.querySelector('.name'), line.name);
      write(item.querySelector('.value'), last(data[i + 1]));
    });
  }

  #point(u) {
    const at = u.cursor.idx;
    [...this.on.legend.children].forEach((item, i) => {
      const values = u.data[i + 1];
      write(item.querySelector('.value'), at === null || at === undefined ? last(values) : text(values[at]));
    });
  }

  #describe(lines, data, unit) {
    const parts = lines.map((line, i) => `${line.name} now ${last(data[i + 1])}, at most ${text(Math.max(0, ...data[i + 1]))}`);
    const label = `Rates of the past ten minutes in ${unit}: ${parts.join('; ')}. The table below has the figures.`;
    if (this.on.chart.getAttribute('aria-label') !== label) this.on.chart.setAttribute('aria-label', label);
  }

  // The table has a row for each half minute, the newest first. It has none while no rule has decided a packet, as there are no lines then.
  #table(lines, data, unit) {
    const rows = new Map();
    data[0].forEach((t, i) => {
      if (!lines.length || data[1][i] === null) return;
      const key = Math.floor(t / 30);
      if (!rows.has(key)) rows.set(key, { at: new Date(30_000 * key), values: lines.map(() => []) });
      lines.forEach((line, j) => rows.get(key).values[j].push(data[j + 1][i]));
    });
    const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
    fill(this.on.table, [
      { head: 'from', text: (r) => clock(r.at) },
      ...lines.map((line, j) => ({ head: `${line.name}, ${unit}`, number: true, text: (r) => text(mean(r.values[j])) })),
    ], [...rows.values()].reverse());
  }
}

function entry() {
  const svg = (name) => document.createElementNS('http://www.w3.org/2000/svg', name);
  const item = document.createElement('li');
  const picture = svg('svg');
  const line = svg('line');
  for (const [key, value] of Object.entries({ width: 28, height: 8, 'aria-hidden': 'true' })) picture.setAttribute(key, value);
  for (const [key, value] of Object.entries({ x1: 0, x2: 28, y1: 4, y2: 4 })) line.setAttribute(key, value);
  picture.append(line);
  item.append(picture);
  for (const name of ['name', 'value']) item.appendChild(document.createElement('span')).className = name;
  return item;
}

const text = (v) => (v === null || v === undefined ? '–' : rate(v));
const last = (values) => text(values.at(-1));

/** colour is that of a class, as the style sheet has it now. */
function colour(name) {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.className = name;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** byVerdict are the lines of what passed and what was dropped. */
function byVerdict(of) {
  return [
    { name: 'passed', look: 0, value: (s) => of(s.passed) },
    { name: 'dropped', look: 1, value: (s) => of(s.dropped) },
  ];
}

/** byRule are lines of the rules that decided most. None looks as what passed or was dropped. */
function byRule(steps, of) {
  const sums = new Map();
  for (const step of steps) {
    for (const r of step.reasons) sums.set(r.name, (sums.get(r.name) ?? 0) + of(r));
  }
  const names = [...sums].sort((a, b) => b[1] - a[1]).slice(0, most).map(([name]) => name);
  return names.map((name, i) => ({
    name, look: i + 2, value: (s) => of(s.reasons.find((r) => r.name === name) ?? { packets: 0, bytes: 0 }),
  }));
}

/** columns are the times of steps, in seconds, and the values of each line. Where a step is missing there is a null. */
function columns(steps, lines) {
  const data = [[], ...lines.map(() => [])];
  let end = 0;
  for (const step of steps) {
    const at = Date.parse(step.time) / 1000;
    if (end && at - step.seconds > end + 1) {
      data[0].push(end + 0.001);
      lines.forEach((line, i) => data[i + 1].push(null));
    }
    data[0].push(at);
    lines.forEach((line, i) => data[i + 1].push(line.value(step) / step.seconds));
    end = at;
  }
  return data;
}

/** tiles writes the rates of the present step, if there is one, and the most of all steps. */
export function tiles(steps, now, byID) {
  const per = (n, step) => rate(n / step.seconds);
  for (const what of ['passed', 'dropped']) {
    write(byID(`${what}-packets`), now ? per(now[what].packets, now) : '–');
    write(byID(`${what}-bits`), now ? per(8 * now[what].bytes, now) + ' bits/s' : '–');
  }
  const all = now ? now.passed.packets + now.dropped.packets : 0;
  write(byID('dropped-share'), all ? percent(now.dropped.packets / all) : '–');
  const peak = steps.reduce((best, s) => (best && best.dropped.packets / best.seconds >= s.dropped.packets / s.seconds ? best : s), null);
  write(byID('peak-packets'), peak ? per(peak.dropped.packets, peak) : '–');
  write(byID('peak-time'), peak?.dropped.packets ? 'at ' + clock(new Date(peak.time)) : 'in ten minutes');
}
