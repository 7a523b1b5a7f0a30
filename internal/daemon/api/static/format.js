// Numbers and times as texts. Rates and amounts read as those of `floodwall top` and `floodwall status`.

const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** count writes a whole number: 12,345. */
export const count = (n) => grouped.format(n);

/** rate writes a rate with three digits at least: 12,345, 1.23M, 4.56G. */
export function rate(v) {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']]) {
    if (v >= size) return (v / size).toFixed(2) + unit;
  }
  return v > 0 && v < 10 ? v.toFixed(1) : count(v);
}

/** total writes a count as rate does, without a fraction. */
export const total = (n) => (n < 10 ? count(n) : rate(n));

/** short writes a number for an axis: 12k, 1.5M. */
export function short(v) {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (v >= size) return Number((v / size).toPrecision(3)) + unit;
  }
  return String(Number(v.toPrecision(3)));
}

/** bytes writes an amount: 512 B, 9.1 kB. */
export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return (i === 0 ? n : n.toFixed(1)) + ' ' + units[i];
}

/** percent writes a share. What is neither none nor all does not read so. */
export function percent(share) {
  if (share > 0 && share < 0.001) return '<0.1%';
  if (share > 0.999 && share < 1) return '>99.9%';
  return (100 * share).toFixed(share === 0 || share === 1 ? 0 : 1) + '%';
}

/** span writes a time in seconds: 42 s, 5 min, 3 h, 2 days. */
export function span(seconds) {
  for (const [size, unit] of [[172800, 'days'], [7200, 'h'], [120, 'min']]) {
    if (seconds >= size) return Math.round(seconds / { days: 86400, h: 3600, min: 60 }[unit]) + ' ' + unit;
  }
  return Math.max(0, Math.round(seconds)) + ' s';
}

const clocks = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dates = new Intl.DateTimeFormat('en-CA', { year: 'numeric', month: '2-digit', day: '2-digit' });

/** clock writes the time of a Date, with its day when that is not today. */
export function clock(date) {
  const day = dates.format(date);
  return (day === dates.format(new Date()) ? '' : day + ' ') + clocks.format(date);
}

/** zone writes by how much this browser's clock differs from UTC. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const digits = (n) => String(Math.floor(n)).padStart(2, '0');
  return minutes === 0 ? 'UTC' : `UTC${minutes < 0 ? '−' : '+'}${digits(Math.abs(minutes) / 60)}:${digits(Math.abs(minutes) % 60)}`;
}
