// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Kinds of events.
const (
	KindDone    = "done"    // the daemon did something
	KindWarning = "warning" // the daemon could not do something
	KindAttack  = "attack"  // an attack begins or ends, or a rule against it is suggested; Data is an attack.Turn
	KindChange  = "change"  // a change was made through the API
)

// Event is something that happened.
type Event struct {
	ID   uint64    `json:"id"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
	Data any       `json:"data,omitempty"`
}

const (
	keptEvents = 512 // number of events that are kept for clients that connect later or reconnect
	waiting    = 256 // the largest number of events that a client may lag behind
)

// Events distributes events to all followers. It never waits for a follower.
type Events struct {
	Each func(Event) // called with each event, in the order of the events, before the followers get the event; may be nil

	mu        sync.Mutex
	last      uint64
	kept      []Event
	followers map[chan Event]bool
}

// NewEvents makes an Events without events.
func NewEvents() *Events { return &Events{followers: map[chan Event]bool{}} }

// Publish sends an event to all followers. A follower that lags too far behind is dropped, and must connect again.
func (e *Events) Publish(kind, text string, data ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	event := Event{ID: e.last, Time: time.Now().UTC(), Kind: kind, Text: text}
	if len(data) > 0 {
		event.Data = data[0]
	}
	if e.Each != nil {
		e.Each(event)
	}
	if len(e.kept) == keptEvents {
		e.kept = append(e.kept[:0], e.kept[1:]...)
	}
	e.kept = append(e.kept, event)
	for f := range e.followers {
		select {
		case f <- event:
		default:
			delete(e.followers, f)
			close(f)
		}
	}
}

// After returns the kept events with a higher number, the oldest first.
func (e *Events) After(number uint64) (list []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.kept {
		if event.ID > number {
			list = append(list, event)
		}
	}
	return list
}

// Last returns the number of the last event, or 0 before the first event.
func (e *Events) Last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// follow returns the kept events with a number above after, and a channel of the coming events. The channel is closed when its reader lags too far
// behind. leave ends the subscription.
func (e *Events) follow(after uint64) (missed []Event, coming <-chan Event, leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.kept {
		if event.ID > after {
			missed = append(missed, event)
		}
	}
	f := make(chan Event, waiting)
	e.followers[f] = true
	return missed, f, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.followers, f)
	}
}

// How long the stream may be silent before a comment keeps the connection open, and how long a client may take to receive an event.
const (
	keepAlive = 15 * time.Second
	eventTime = 10 * time.Second
)

// events streams events as server-sent events (HTML Living Standard). The header Last-Event-ID, or the query parameter `after`, is the number of the
// last event that the client has received. A client that gives neither gets all kept events.
func (c *Call) events() error {
	after, err := c.lastEvent()
	if err != nil {
		return err
	}
	release, err := c.streams.take()
	if err != nil {
		return err
	}
	defer release()
	missed, coming, leave := c.parts.Events.follow(after)
	defer leave()
	c.started = true
	c.out.Header().Set("Content-Type", "text/event-stream")
	c.out.WriteHeader(http.StatusOK)
	for _, event := range missed {
		if err := c.send(event); err != nil {
			return err
		}
	}
	for {
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case <-c.request.Context().Done():
			return nil
		case event, open := <-coming:
			if !open {
				return nil
			}
			if err := c.send(event); err != nil {
				return err
			}
		case <-time.After(keepAlive):
			if err := c.sendText(": nothing happened\n\n"); err != nil {
				return err
			}
		}
	}
}

// lastEvent returns the number of the last event that the client has received.
func (c *Call) lastEvent() (uint64, error) {
	text := c.request.Header.Get("Last-Event-ID")
	if text == "" {
		text = c.request.URL.Query().Get("after")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badQuery("after", text, "a number of an event")
	}
	return n, nil
}

func (c *Call) send(e Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.sendText(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, text))
}

// sendText writes a part of a stream.
func (c *Call) sendText(text string) error {
	http.NewResponseController(c.out).SetWriteDeadline(time.Now().Add(eventTime))
	_, err := c.out.Write([]byte(text))
	return err
}

func (c *Call) flush() error {
	control := http.NewResponseController(c.out)
	control.SetWriteDeadline(time.Now().Add(eventTime))
	return control.Flush()
}
