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

// browser is a Chromium with one page, driven by its DevTools.
type browser struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // addresses that it asked, in order
	messages []string // of the console and of scripts
}

// startBrowser starts Chromium, until the end of the test.
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

// call sends a command to the DevTools of the page.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.Fatalf("the browser: %s: %v", command.Method, err)
	}
	return result
}

// asked are the addresses that the browser has asked.
func (b *browser) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[:len(b.requests):len(b.requests)]
}

// clean fails the test when something went wrong in the page, or when it asked another place than one host.
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

// act has the browser do something.
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

// value is that of an expression of JavaScript in the page.
func value[R any](b *browser, expression string) R {
	b.Helper()
	return act(b, chromedp.Evaluate[R](expression))
}

// text is the text of the element with an id.
func (b *browser) text(id string) string {
	b.Helper()
	return value[string](b, "document.getElementById('"+id+"').innerText")
}

// shows waits until the element with an id has a text.
func (b *browser) shows(id, want string) {
	b.Helper()
	b.until(fmt.Sprintf("#%s shows %q", id, want), func() bool { return strings.Contains(b.text(id), want) })
}

// until waits until something is so.
func (b *browser) until(what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waiting until %s; the page:\n%s", what, value[string](b, "document.body.innerText"))
		}
	}
}

// size gives the page a size in CSS pixels, and a scheme of colours.
func (b *browser) size(width, height int64, scheme string) {
	b.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// rows are the cells of the table with an id, by the first of each row and by the head of the column.
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
