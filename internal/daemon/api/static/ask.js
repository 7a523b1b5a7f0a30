// Asks the API again and again, and follows events, as long as somebody looks at the page.

/** kinds are those of events, with the word for each. */
export const kinds = { done: 'done', warning: '⚠ warning', attack: '⚠ attack', change: '✎ change' };

const patience = 20_000; // milliseconds that an answer may take
const again = 3_000; // milliseconds until events are asked for again

/**
 * Asker asks. heard is called with each answer that comes, whatever it says; silent when none comes.
 */
export class Asker {
  #tasks = [];
  #stopped = null; // an AbortController while it asks
  #events = null;
  #follow = null;

  constructor(heard, silent) {
    this.heard = heard;
    this.silent = silent;
  }

  /**
   * every asks for a path again and again, with a pause of some seconds, which is longer when answers take long. path is a function;
   * nothing is asked when it returns nothing. take is called with the body of a good answer, refused with the one of another.
   */
  every(seconds, path, take, refused = () => {}) {
    this.#tasks.push({ seconds, path, take, refused, wake: null });
  }

  /** follow calls begin when the daemon tells its events from the first that it keeps, and take with each one. */
  follow(begin, take) {
    this.#follow = { begin, take };
  }

  start() {
    if (this.#stopped) return;
    this.#stopped = new AbortController();
    for (const task of this.#tasks) this.#run(task, this.#stopped.signal);
    this.#listen(this.#stopped.signal);
  }

  stop() {
    this.#stopped?.abort();
    this.#stopped = null;
    this.hurry();
    this.#events?.close();
    this.#events = null;
  }

  /** hurry has everything asked at once. */
  hurry() {
    for (const task of this.#tasks) task.wake?.();
  }

  async #run(task, signal) {
    while (!signal.aborted) {
      const begin = performance.now();
      const path = task.path();
      if (path) await this.#ask(path, task, signal);
      if (signal.aborted) return;
      const pause = Math.max(1000 * task.seconds, 3 * (performance.now() - begin - 2000));
      let timer;
      await new Promise((done) => {
        task.wake = done;
        timer = setTimeout(done, pause);
      });
      clearTimeout(timer);
    }
  }

  async #ask(path, task, signal) {
    let response, body;
    try {
      response = await fetch(path, { signal: AbortSignal.any([signal, AbortSignal.timeout(patience)]) });
      body = await response.json();
    } catch {
      if (!signal.aborted) this.silent();
      return;
    }
    if (signal.aborted) return;
    this.heard();
    try {
      if (response.ok) task.take(body);
      else task.refused(body, response.status);
    } catch (defect) {
      console.error(path, defect); // and ask again
    }
  }

  // Events begin anew with each connection, as another daemon may answer, which counts them anew.
  #listen(signal) {
    if (signal.aborted) return;
    const source = new EventSource('v1/events');
    this.#events = source;
    source.addEventListener('open', () => this.#follow.begin());
    for (const kind of Object.keys(kinds)) {
      source.addEventListener(kind, (message) => this.#follow.take(JSON.parse(message.data)));
    }
    source.addEventListener('error', () => {
      source.close();
      if (!signal.aborted) setTimeout(() => this.#listen(signal), again);
    });
  }
}
