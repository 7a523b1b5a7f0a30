// The theme is set before anything is drawn: the system's, unless somebody chose another one in this browser.
'use strict';

(() => {
  const key = 'floodwall-theme';

  function set(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    document.dispatchEvent(new Event('theme'));
  }

  let chosen = '';
  try {
    chosen = localStorage.getItem(key) ?? '';
  } catch { /* the browser keeps nothing */ }
  set(chosen);

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.dispatchEvent(new Event('theme')));

  document.addEventListener('DOMContentLoaded', () => {
    const select = document.getElementById('theme');
    select.value = chosen;
    select.addEventListener('change', () => {
      set(select.value);
      try {
        localStorage.setItem(key, select.value);
      } catch { /* it holds until the page is closed */ }
    });
  });
})();
