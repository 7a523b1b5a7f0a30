// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/test/testutil"
)

// hostile is text that would run a script if a browser interpreted it as HTML. Names of rules and sets cannot contain such characters. The name of a
// policy and the reason of a ban can.
const hostile = "<img src=x onerror=window.hit=1>"

// pageAddress is the API's address in the policy of TestPage.
const pageAddress = "127.0.0.1:9810"

// TestPage opens the live page in Chromium, with a real daemon and real packets.
func TestPage(t *testing.T) {
	if !inside(t) {
		return
	}
	sh(t, "ip link set fw0 address 02:00:00:00:00:02") // the destination address of testutil.Send
	file := filepath.Join(t.TempDir(), hostile+".yaml")
	writeFile(t, file, monitored)
	mustFloodwall(t, "apply", file, "--confirm", "120s")
	h := startDaemon(t)
	waitFor(t, "the page", func() bool { return reachable(pageAddress) })
	b := startBrowser(t)
	b.size(1440, 900, "light")
	b.open(pageAddress)

	b.shows("state-word", "On trial")
	b.shows("state-text", "Nothing is filtered any more in 1")
	h.change(200, "/v1/confirm", struct{}{})
	b.shows("state-word", "In force")

	b.pageFigures(h)
	b.pageHostile(h)
	b.pageSizes()
	b.pageKeyboard()
	b.pageAccessible()
	b.pageClock()
	b.pageWithoutRules()
	b.pageHidden()
	b.clean(pageAddress) // the following steps cause errors in the console
	b.pageRefusesHTML()
	b.pageWithoutDaemon(h)
}

// past returns the steps of /v1/series.
func (h *apiHost) past() (p api.Past) {
	h.Helper()
	if err := json.Unmarshal([]byte(h.must(200, readSocket, "/v1/series").body), &p); err != nil {
		h.Fatal(err)
	}
	return p
}

// pageFigures sends packets. The page, /v1/status and the sum of /v1/series must count all of them. The page must show the rate of a step of the
// series, in the format of `floodwall top`.
func (b *browser) pageFigures(h *apiHost) {
	b.Helper()
	const sent = 4321
	send := func(n int) {
		if err := testutil.Send("fw1", "udp 198.51.100.9:9 > 192.0.2.1:7", n); err != nil {
			b.Fatal(err)
		}
	}
	send(sent - 1000)
	b.until("there is a rate", func() bool { return !slices.Contains([]string{"0", "–"}, b.text("peak-packets")) })
	most, now := b.text("peak-packets"), b.text("dropped-packets")
	rates, highest := map[string]bool{}, 0.0
	for _, s := range h.past().Steps {
		rate := float64(s.Dropped.Packets) / s.Seconds
		rates[wording.Rate(rate)], highest = true, max(highest, rate)
	}
	if most != wording.Rate(highest) || !rates[now] {
		b.Errorf("the page shows %s dropped packets/s now and %s at most; the steps have %v", now, most, rates)
	}
	send(1000)
	b.until("rule port7 has all packets", func() bool { return b.rows("rules")["port7"]["packets"] == "4,321" })
	if row := b.rows("rules")["port7"]; row["verdict"] != "✕ drop" {
		b.Errorf("the page has %q of rule port7", row)
	}
	summed := func() (n uint64) {
		for _, s := range h.past().Steps {
			for _, r := range s.Reasons {
				if r.Name == "port7" {
					n += r.Packets
				}
			}
		}
		return n
	}
	b.until("the series has all packets", func() bool { return summed() == sent })
	var rules api.RuleList
	if err := json.Unmarshal([]byte(h.must(200, readSocket, "/v1/rules").body), &rules); err != nil {
		b.Fatal(err)
	}
	for _, r := range rules.Rules {
		if r.Name == "port7" && r.Packets != sent {
			b.Errorf("the API has %d packets of port7, want %d", r.Packets, sent)
		}
	}
	for id, want := range map[string]string{"devices": "fw0", "sets": "bans", "limits": "flood\nrate: 2/day", "protections": "web"} {
		if text := value[string](b, "document.getElementById('"+id+"').tBodies[0].textContent"); !strings.Contains(text, want) {
			b.Errorf("table %s lacks %s: %s", id, want, text)
		}
	}
}

// pageHostile bans an address with the hostile text as reason. The page must show the reason and the name of the policy as plain text.
func (b *browser) pageHostile(h *apiHost) {
	b.Helper()
	h.change(200, "/v1/block", map[string]any{"prefixes": []string{"198.51.100.77"}, "why": hostile})
	b.shows("events", "why "+hostile)
	b.shows("policy", hostile+".yaml")
	for _, part := range []struct{ id, answer, want string }{ // as the API would answer, which comes in between
		{"attacks", `{attacks: [{id: '20260102-150405', started: '2026-01-02T15:04:05Z', peak: {packets: 1234567}, passed: {packets: 1},
			dropped: {packets: 3}, vectors: ["` + hostile + `"]}]}`, hostile + "\t2026-01-02 15:04:05\t⚠ goes on\t1.23M\t75.0%"},
		{"feeds", `{feeds: [{set: 'drop', state: 'failing', why: "` + hostile + `", age: 7201, checked: 'x', entries: 5}]}`,
			"failing: " + hostile + "\t2 h\t5"},
		{"temporary", `{rules: [{name: 'port7', verdict: 'drop', packets: 1}, {name: 'auto-1', verdict: 'drop', observe: true, packets: 12345,
			temporary: {rule: "` + hostile + `", until: '2026-01-02T15:04:05Z', owner: 'auto'}}]}`,
			hostile + "\t(drop) counts only\t2026-01-02 15:04:05\tauto\t12,345"},
	} {
		b.until("section "+part.id+" has "+part.want, func() bool {
			value[bool](b, "(import('/page/sections.js').then(s => s."+part.id+"("+part.answer+")), true)")
			return strings.Contains(b.text(part.id), part.want)
		})
	}
	if n := value[int](b, "document.querySelectorAll('img, script:not([src]), [onerror]').length + (window.hit ?? 0)"); n != 0 {
		b.Errorf("text became %d elements", n)
	}
}

// pageRefusesHTML runs a script that inserts text as HTML, as a defect of the page might do. The Content-Security-Policy must prevent this.
func (b *browser) pageRefusesHTML() {
	b.Helper()
	if said := value[string](b, "try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); 'done' } catch (e) { e.name }"); said != "TypeError" {
		b.Errorf("text as HTML: %s, want a TypeError", said)
	}
}

// talking is an answer of /v1/top with an address of usual length and a long address.
const talking = `{seconds: 2, samples: {one_in: 10, packets: 394, verdicts: true, fields: {}, sources:
	['198.51.100.222/32', '2001:db8:1111:2222:3333:4444:5555:6666/128'].map(key => ({key, packets: 2546, share: 0.793, dropped: 1, error: 9}))}}`

// pageSizes shows the page on a phone and a desktop, in both colour schemes. Nothing may be wider than the screen, and no table wider than its
// container. The colours must follow the setting of the system, unless the user chooses a scheme.
func (b *browser) pageSizes() {
	b.Helper()
	light := func() bool {
		return value[bool](b, "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).every(c => c > 200)")
	}
	for _, s := range []struct {
		width, height int64
		scheme        string
	}{{375, 667, "dark"}, {390, 844, "light"}, {1440, 900, "dark"}, {1440, 900, "light"}} {
		b.size(s.width, s.height, s.scheme)
		if light() != (s.scheme == "light") {
			b.Errorf("%v: light is %v", s, light())
		}
		b.untilNone(fmt.Sprintf("%v: nothing is wider than the screen", s), func() string { // the chart follows later
			value[bool](b, "(import('/page/sections.js').then(s => s.talkers("+talking+", 'sources')), true)")
			return value[string](b, `(() => {
				const right = e => e.getBoundingClientRect().right, screen = document.documentElement
				const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .skip, .hidden') && right(e) > screen.clientWidth + 0.5)
				if (screen.scrollWidth > screen.clientWidth) wide.push(screen)
				wide.push(...[...document.querySelectorAll('.card > table')].filter(e => right(e) > right(e.parentElement) - 8))
				return wide.map(e => e.outerHTML.slice(0, 80)).join(', ')
			})()`)
		})
	}
	value[bool](b, "(() => { const t = document.getElementById('theme'); t.value = 'dark'; return t.dispatchEvent(new Event('change')) })()")
	if light() {
		b.Error("it is light after dark was chosen")
	}
	value[bool](b, "(() => { const t = document.getElementById('theme'); t.value = ''; return t.dispatchEvent(new Event('change')) })()")
}

// pageKeyboard moves through the page with the tab key. It stops and restarts the page with the space bar.
func (b *browser) pageKeyboard() {
	b.Helper()
	value[bool](b, "(document.activeElement.blur(), scrollTo(0, 0), true)")
	var path []string
	for range 14 {
		b.key("Tab", "Tab", "", 9)
		id := value[string](b, "(e => (getComputedStyle(e).outlineStyle === 'none' ? 'no outline: ' : '') + (e.id || e.className || e.textContent))(document.activeElement)")
		if id == "openapi.json" {
			break
		}
		path = append(path, id)
	}
	want := []string{"skip", "pause", "theme", "chart-by", "chart-unit", "The chart as a table", "talkers-by", "events"}
	if !slices.Equal(path, want) {
		b.Errorf("the tabulator key leads through %q, want %q", path, want)
	}
	value[bool](b, "(document.getElementById('pause').focus(), true)")
	b.key(" ", "Space", " ", 32)
	if pressed := value[string](b, "document.activeElement.ariaPressed"); pressed != "true" {
		b.Errorf("the button is pressed: %s", pressed)
	}
	b.quiet("while it is paused")
	b.key(" ", "Space", " ", 32)
	b.asks("after the pause")
}

// quiet waits for a time in which the page usually sends two requests. It fails the test if the page sends one.
func (b *browser) quiet(when string) {
	b.Helper()
	before := len(b.asked())
	time.Sleep(2500 * time.Millisecond)
	if now := b.asked(); len(now) > before {
		b.Errorf("%s the page asks for %v", when, now[before:])
	}
}

// asks waits until the page sends another request.
func (b *browser) asks(when string) {
	b.Helper()
	before := len(b.asked())
	b.until(when+" the page asks", func() bool { return len(b.asked()) > before })
}

// pageAccessible checks the page's accessibility tree in Chromium, which screen readers use.
func (b *browser) pageAccessible() {
	b.Helper()
	value[bool](b, "document.getElementById('chart-details').open = true")
	roles := map[string]int{}
	type text struct{ Value string }
	for _, n := range call[struct {
		Nodes []struct {
			Ignored    bool
			Role, Name text
		}
	}](b, "Accessibility.getFullAXTree", nil).Nodes {
		if n.Ignored || n.Role.Value == "" {
			continue
		}
		role, name := n.Role.Value, n.Name.Value
		roles[role]++
		if slices.Contains([]string{"button", "combobox", "table", "image", "img", "region", "link", "heading", "columnheader", "rowheader"}, role) && name == "" {
			b.Errorf("something of role %s has no name", role)
		}
	}
	for role, least := range map[string]int{"banner": 1, "main": 1, "contentinfo": 1, "status": 1, "table": 5, "columnheader": 20, "rowheader": 8, "combobox": 4} {
		if roles[role] < least {
			b.Errorf("%d of role %s, want %d; all: %v", roles[role], role, least, roles)
		}
	}
	value[bool](b, "document.getElementById('chart-details').open = false")
}

// withSeries opens the table of the chart, and changes what the page gets of /v1/series, while during is called. change is a statement of JavaScript
// that changes the object body of the answer.
func (b *browser) withSeries(change string, during func()) {
	b.Helper()
	value[bool](b, `(window.before = fetch, window.fetch = async (path, options) => {
		if (!String(path).startsWith('v1/series')) return before(path, options);
		const body = await (await before('v1/series', options)).json();
		`+change+`;
		return new Response(JSON.stringify(body));
	}, document.getElementById('chart-details').open = true)`)
	during()
	value[bool](b, "(window.fetch = before, document.getElementById('chart-details').open = false, true)")
}

// pageClock simulates for the page that the clock of the daemon's host is set back by two hours. The chart must continue at the new time.
func (b *browser) pageClock() {
	b.Helper()
	b.withSeries("for (const s of body.steps) s.time = new Date(Date.parse(s.time) - 7200000).toISOString()", func() {
		b.until("the newest row of the chart is of two hours ago", func() bool {
			return value[bool](b, `(newest => [0, 1, 2].some(n => newest === new Intl.DateTimeFormat('en-GB', {timeStyle: 'medium'}).format(
				new Date(30000 * (Math.floor((Date.now() - 7200000) / 30000) - n)))))(document.querySelector('#chart-table tbody tr').firstChild.innerText.slice(-8))`)
		})
	})
}

// pageWithoutRules gives the page steps in which no rule has decided about a packet. One step is missing. In the view by rule, the chart must have no
// line and its table no row. In the view by verdict, they must have both.
func (b *browser) pageWithoutRules() {
	b.Helper()
	b.withSeries(`const none = { packets: 0, bytes: 0 };
		body.steps = [5, 4, 1, 0].map((ago) => ({ time: new Date(Date.now() - 1000 * ago).toISOString(), seconds: 1, passed: none, dropped: none, reasons: [] }))`, func() {
		for _, view := range []struct {
			by    string
			lines int
		}{{"rule", 0}, {"verdict", 2}} { // the last one is the view of a new page
			value[bool](b, `(by => (by.value = '`+view.by+`', by.dispatchEvent(new Event('change')), true))(document.getElementById('chart-by'))`)
			b.until("the chart of idle rules is drawn by "+view.by, func() bool {
				return value[int](b, "document.getElementById('legend').children.length") == view.lines &&
					value[bool](b, "document.querySelectorAll('#chart-table tbody tr').length > 0") == (view.lines > 0)
			})
		}
	})
}

// pageHidden hides the page, as if the user opened another tab. The page must send no requests while it is hidden, and continue when it is shown
// again.
func (b *browser) pageHidden() {
	b.Helper()
	hide := func(is bool) {
		value[bool](b, fmt.Sprintf("(Object.defineProperty(document, 'hidden', {value: %v, configurable: true}), document.dispatchEvent(new Event('visibilitychange')))", is))
	}
	hide(true)
	b.quiet("while it is hidden")
	hide(false)
	b.asks("when it is shown again")
}

// pageWithoutDaemon kills the daemon. The page must show the time since which there is no answer. It must continue with the next daemon.
func (b *browser) pageWithoutDaemon(h *apiHost) {
	b.Helper()
	h.kill()
	b.shows("state-word", "No answer")
	b.shows("state-text", "has not answered since "+time.Now().Format("15:"))
	b.shows("dropped-packets", "–")
	startDaemon(b.T)
	b.shows("state-word", "In force")
	b.until("there are the events of the next daemon alone", func() bool {
		text := b.text("events")
		return strings.Contains(text, "serving") && !strings.Contains(text, "why "+hostile)
	})
}
