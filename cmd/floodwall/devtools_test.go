// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// devtools is a Chromium that this process controls by messages of the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/). Each
// message is a JSON object and a zero byte, in a pipe.
type devtools struct {
	in      io.Writer
	session string
	event   func(method string, params json.RawMessage) // is called for each event, one after another

	mu      sync.Mutex
	last    int
	waiting map[int]chan message // the senders of commands, by the number of the command
}

// message is a command, an answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// startDevtools starts Chromium with an empty page. It ends with the test.
func startDevtools(t *testing.T, event func(string, json.RawMessage)) *devtools {
	t.Helper()
	home := t.TempDir()
	c := exec.Command("chromium", "--headless", "--remote-debugging-pipe", "--user-data-dir="+home+"/profile",
		"--no-sandbox", // the namespaces of the test are its sandbox
		"--no-first-run", "--hide-scrollbars", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync", "--disable-background-networking",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--force-color-profile=srgb")
	c.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_RUNTIME_DIR="+home)
	var said strings.Builder
	c.Stderr = &said
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	c.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	d := &devtools{in: in, event: event, waiting: map[int]chan message{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.read(out)
	}()
	t.Cleanup(func() {
		d.session = ""
		d.send("Browser.close", nil) // so it ends its other processes, which write to its home
		end := time.AfterFunc(time.Minute, func() { c.Process.Kill() })
		<-read
		c.Wait()
		end.Stop()
		if t.Failed() {
			t.Logf("chromium: %s", &said)
		}
	})
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	err := d.call("Target.createTarget", fields{"url": "about:blank"}, &target)
	if err == nil {
		err = d.call("Target.attachToTarget", fields{"targetId": target.TargetID, "flatten": true}, &session)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.session = session.SessionID
	return d
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// fields are the parameters of a command.
type fields map[string]any

// read delivers the messages of the browser until it ends.
func (d *devtools) read(out io.Reader) {
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			break
		}
		if m.ID == 0 {
			d.event(m.Method, m.Params)
			continue
		}
		d.mu.Lock()
		answer := d.waiting[m.ID]
		delete(d.waiting, m.ID)
		d.mu.Unlock()
		answer <- m
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, answer := range d.waiting {
		close(answer)
	}
	d.waiting = nil
}

// send sends a command. Its answer arrives in the channel, which is closed when the browser has ended.
func (d *devtools) send(method string, params fields) (<-chan message, error) {
	parameters, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		return nil, io.ErrUnexpectedEOF
	}
	d.last++
	text, err := json.Marshal(message{ID: d.last, Session: d.session, Method: method, Params: parameters})
	if err != nil {
		return nil, err
	}
	d.waiting[d.last] = answer
	_, err = d.in.Write(append(text, 0))
	return answer, err
}

// call sends a command, and waits for its result.
func (d *devtools) call(method string, params fields, result any) error {
	answer, err := d.send(method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return fmt.Errorf("%s: the browser has ended", method)
		}
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error)
		}
		return json.Unmarshal(m.Result, result)
	case <-time.After(time.Minute):
		return fmt.Errorf("%s: no answer", method)
	}
}
