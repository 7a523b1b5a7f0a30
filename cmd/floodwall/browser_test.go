// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/floodwall/floodwall/test/testutil"
)

// browser is a Chromium with one page, controlled through the DevTools protocol.
type browser struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // requested addresses, in order
	messages []string // messages of the console and of scripts
}

// startBrowser starts Chromium. The browser ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	testutil.RequireTool(t, "chromium")
	home := t.TempDir()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.UserDataDir(home+"/profile"),
		chromedp.NoSandbox, // the namespaces of the test are its sandbox
		chromedp.DisableGPU, chromedp.Env("HOME="+home, "TMPDIR="+home, "XDG_RUNTIME_DIR="+home))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &browser{T: t, ctx: ctx}
	messages := chromedp.Console(ctx) // starts the browser
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.note(&b.messages, fmt.Sprintf("%s %s", m, m.URL))
		}
	}()
	if err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			b.note(&b.requests, e.Request.URL)
		}
	}); err != nil {
		t.Fatalf("the browser: %v", err)
	}
	call(b, network.Enable, network.EnableParams{})
	return b
}

func (b *browser) note(to *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, text)
}

// call sends a command to the page through the DevTools protocol, and returns the result.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.Fatalf("the browser: %s: %v", command.Method, err)
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

// act runs an action in the browser.
func act[R any](b *browser, action chromedp.Action[R]) R {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.Fatalf("the browser: %v", err)
	}
	return result
}

// value returns the value of a JavaScript expression in the page.
func value[R any](b *browser, expression string) R {
	b.Helper()
	return act(b, chromedp.Evaluate[R](expression))
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
			b.Fatalf("waiting until %s: %s; the page:\n%s", what, found, value[string](b, "document.body.innerText"))
		}
	}
}

// size sets the size of the page in CSS pixels, and its colour scheme.
func (b *browser) size(width, height int64, scheme string) {
	b.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
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
