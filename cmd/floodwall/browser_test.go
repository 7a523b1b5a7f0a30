// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// browser is a Chromium with one page.
type browser struct {
	*testing.T
	page *devtools

	mu       sync.Mutex
	requests []string // requested addresses, in order
	messages []string // messages of the console and of scripts
	failures []string // requests that got no answer
}

// startBrowser starts Chromium. The browser ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	testutil.RequireTool(t, "chromium")
	b := &browser{T: t}
	b.page = startDevtools(t, func(method string, params json.RawMessage) {
		switch method {
		case "Network.requestWillBeSent":
			var e struct{ Request struct{ URL string } }
			if err := json.Unmarshal(params, &e); err != nil {
				b.note(&b.messages, err.Error())
			}
			b.note(&b.requests, e.Request.URL)
		case "Network.loadingFailed":
			b.note(&b.failures, string(params))
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.note(&b.messages, string(params))
		}
	})
	for _, domain := range []string{"Network", "Runtime", "Log"} {
		call[struct{}](b, domain+".enable", nil)
	}
	return b
}

func (b *browser) note(to *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, text)
}

// call sends a command of the DevTools protocol to the page, and returns the result.
func call[R any](b *browser, method string, params fields) (result R) {
	b.Helper()
	if err := b.page.call(method, params, &result); err != nil {
		b.Fatalf("the browser: %v", err)
	}
	return result
}

// asked returns the addresses of all requests that the browser sent.
func (b *browser) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[:len(b.requests):len(b.requests)]
}

// clean fails the test when an error occurred in the page, or when the page sent a request to another host.
func (b *browser) clean(host string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.messages {
		b.Errorf("in the page: %s", e)
	}
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Host != host {
			b.Errorf("the page asked elsewhere: %s", r)
		}
	}
}

// open loads the page at an address of http, and waits until it is loaded.
func (b *browser) open(address string) {
	b.Helper()
	if failed := call[struct{ ErrorText string }](b, "Page.navigate", fields{"url": "http://" + address + "/"}); failed.ErrorText != "" {
		b.Fatalf("the browser: %s: %s", address, failed.ErrorText)
	}
	b.until("the page is loaded", func() bool { return value[bool](b, "document.readyState === 'complete' && location.host !== ''") })
}

// key presses and releases a key, which writes text: its name, its place on the keyboard and its number, as in events of the page.
func (b *browser) key(name, code, text string, number int) {
	b.Helper()
	press := fields{"type": "keyDown", "key": name, "code": code, "text": text, "windowsVirtualKeyCode": number}
	call[struct{}](b, "Input.dispatchKeyEvent", press)
	press["type"], press["text"] = "keyUp", ""
	call[struct{}](b, "Input.dispatchKeyEvent", press)
}

// value returns the value of a JavaScript expression in the page.
func value[R any](b *browser, expression string) R {
	b.Helper()
	got := call[struct {
		Result           struct{ Value R }
		ExceptionDetails json.RawMessage
	}](b, "Runtime.evaluate", fields{"expression": expression, "returnByValue": true})
	if got.ExceptionDetails != nil {
		b.Fatalf("the browser: %s: %s", expression, got.ExceptionDetails)
	}
	return got.Result.Value
}

// text returns the text of the element with the given id.
func (b *browser) text(id string) string {
	b.Helper()
	return value[string](b, "document.getElementById('"+id+"').innerText")
}

// shows waits until the element with the given id contains a text.
func (b *browser) shows(id, want string) {
	b.Helper()
	b.until(fmt.Sprintf("#%s shows %q", id, want), func() bool { return strings.Contains(b.text(id), want) })
}

// until waits until a condition holds.
func (b *browser) until(what string, is func() bool) {
	b.Helper()
	b.untilNone(what, func() string {
		if is() {
			return ""
		}
		return "it does not hold"
	})
}

// untilNone waits until wrong returns "", which means that nothing contradicts a condition. On failure, the error contains the last result of wrong.
func (b *browser) untilNone(what string, wrong func() string) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := wrong()
		if found == "" {
			return
		}
		if time.Now().After(end) {
			state := value[string](b, "document.visibilityState + ', ' + document.body.innerText")
			b.mu.Lock()
			defer b.mu.Unlock()
			b.Fatalf("waiting until %s: %s; requests: %q; messages: %q; failures: %q; the page: %s", what, found, b.requests, b.messages, b.failures, state)
		}
	}
}

// size sets the size of the page in CSS pixels, and its colour scheme.
func (b *browser) size(width, height int64, scheme string) {
	b.Helper()
	call[struct{}](b, "Emulation.setDeviceMetricsOverride", fields{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	call[struct{}](b, "Emulation.setEmulatedMedia", fields{"features": []fields{{"name": "prefers-color-scheme", "value": scheme}}})
}

// rows returns the cells of the table with the given id. The keys are the first cell of the row and the head of the column.
func (b *browser) rows(id string) map[string]map[string]string {
	b.Helper()
	table := value[[][]string](b, fmt.Sprintf("[...document.getElementById('%s').rows].map(r => [...r.cells].map(c => c.textContent))", id))
	by := map[string]map[string]string{}
	for _, row := range table[min(1, len(table)):] {
		by[row[0]] = map[string]string{}
		for i, cell := range row {
			by[row[0]][table[0][i]] = cell
		}
	}
	return by
}
