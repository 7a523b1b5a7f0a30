// Tables that are written again and again. All content is text: nothing that comes from packets, policies or lists is HTML.

/** write gives an element a text, unless it has it: a selection or a screen reader's place stays where it is. */
export function write(element, text) {
  text = String(text);
  if (element.textContent !== text) element.textContent = text;
}

/**
 * fill writes rows into a table. A column has a head and a function that returns its text of a row; number: it is aligned on the
 * right; wide: it is left out on narrow screens; words: no word of it is broken; style: a function that returns a class; share: a
 * function that returns how full something is, from 0 to 1, drawn beside the text, or nothing.
 */
export function fill(table, columns, rows) {
  head(table, columns);
  const body = table.tBodies[0] ?? table.createTBody();
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, i) => {
    const tr = body.rows[i] ?? line(body, columns);
    columns.forEach((column, j) => cell(tr.cells[j], column, row));
  });
}

function head(table, columns) {
  const names = columns.map((c) => c.head).join('\n');
  if (table.dataset.columns === names) return;
  table.dataset.columns = names;
  table.replaceChildren();
  const tr = table.createTHead().insertRow();
  for (const column of columns) {
    const th = document.createElement('th');
    th.scope = 'col';
    th.textContent = column.head;
    place(th, column);
    tr.append(th);
  }
}

function line(body, columns) {
  const tr = body.insertRow();
  columns.forEach((column, j) => {
    const element = document.createElement(j === 0 ? 'th' : 'td');
    if (j === 0) element.scope = 'row';
    place(element, column);
    if (column.share) {
      const meter = document.createElement('meter');
      meter.setAttribute('aria-hidden', 'true'); // the text says the same
      element.append(meter, document.createElement('span'));
    }
    tr.append(element);
  });
  return tr;
}

function place(element, column, style = '') {
  element.className = [style, ...['number', 'wide', 'words'].filter((name) => column[name])].join(' ').trim();
}

function cell(element, column, row) {
  const text = column.text(row);
  if (!column.share) {
    write(element, text);
  } else {
    const [meter, span] = element.children;
    const share = column.share(row);
    meter.hidden = share === undefined;
    meter.value = Math.min(1, share ?? 0);
    meter.high = 0.9;
    meter.optimum = 0;
    write(span, text);
  }
  if (column.style) place(element, column, column.style(row));
}

/** list writes texts into a list. */
export function list(element, texts) {
  while (element.children.length > texts.length) element.lastChild.remove();
  texts.forEach((text, i) => write(element.children[i] ?? element.appendChild(document.createElement('li')), text));
  element.hidden = texts.length === 0;
}
