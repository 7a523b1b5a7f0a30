// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// live shows a demonstration as a picture. It is redrawn at every moment and when the size of the terminal changes.
//
// It reads no keys, sends no queries to the terminal and changes no setting of it. So Ctrl-C stays a signal, and a killed process leaves the terminal
// as it was. A slow terminal misses pictures, and does not delay the demonstration.
type live struct {
	out     *os.File
	redraw  chan os.Signal // or nil; at most one signal waits
	done    chan error
	mu      sync.Mutex
	picture *picture // guarded by mu
}

func newLive(out *os.File, color bool) *live {
	width, _ := size(out)
	l := &live{out: out, redraw: make(chan os.Signal, 1), done: make(chan error, 1), picture: newPicture(color, width)}
	signal.Notify(l.redraw, unix.SIGWINCH)
	go func() { l.done <- l.run() }()
	l.change(func(*picture) {})
	return l
}

// run draws the picture after every change. At the end it removes the picture.
func (l *live) run() (err error) {
	s := &screen{out: l.out}
	for range l.redraw {
		if err == nil {
			err = l.draw(s)
		}
	}
	if err == nil {
		err = l.draw(s)
	}
	if err != nil {
		return fmt.Errorf("drawing on the terminal: %w", err)
	}
	return nil
}

func (l *live) draw(s *screen) error {
	l.mu.Lock()
	p := l.picture
	p.width, p.height = size(l.out)
	view, width := p.View(), p.width
	l.mu.Unlock()
	return s.draw(view, width)
}

// change changes the picture, and requests that it is drawn again.
func (l *live) change(f func(*picture)) {
	l.mu.Lock()
	f(l.picture)
	l.mu.Unlock()
	select {
	case l.redraw <- nil:
	default:
	}
}

func (l *live) Interval() time.Duration { return 200 * time.Millisecond }

func (l *live) Policy(text string)         { l.change(func(p *picture) { p.policy = text }) }
func (l *live) Note(text string)           { l.change(func(p *picture) { p.note = text }) }
func (l *live) Page(address string)        { l.change(func(p *picture) { p.page = address }) }
func (l *live) Phase(number int, _ string) { l.change(func(p *picture) { p.begin(number) }) }
func (l *live) Moment(m Moment)            { l.change(func(p *picture) { p.add(m) }) }

// Close removes the picture, so that only the summary remains.
func (l *live) Close() error {
	l.change(func(p *picture) { p.ended = true })
	signal.Stop(l.redraw)
	close(l.redraw)
	return <-l.done
}
