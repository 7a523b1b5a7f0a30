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
	KindWarning = "warning" // it could not
	KindAttack  = "attack"  // an attack begins or is over, or a rule against it is suggested; Data is an attack.Turn
	KindChange  = "change"  // somebody changed what runs, through the API
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
	keptEvents = 512 // for who connects later, or again
	waiting    = 256 // events that a client may be behind
)

// Events hands what happens to all who follow it. Nobody who follows is waited for.
type Events struct {
	Each func(Event) // is told each, in their order, before those who follow; nil: nobody

	mu        sync.Mutex
	last      uint64
	kept      []Event
	followers map[chan Event]bool
}

// NewEvents makes one that nothing has happened to.
func NewEvents() *Events { return &Events{followers: map[chan Event]bool{}} }

// Publish tells all who follow. Who is too far behind is dropped, and has to connect again.
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

// After are the events after a number that are kept, the oldest first.
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

// Last is the number of the last event, 0 when there was none.
func (e *Events) Last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// follow returns the events after a number that are kept, and a channel of those to come. It is closed when its reader is
// too far behind. leave ends it.
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

// How long nothing is sent before a comment keeps the connection, and how long a client may take to receive an event.
const (
	keepAlive = 15 * time.Second
	eventTime = 10 * time.Second
)

// events sends events as they happen, in the form that HTML has for server-sent events. The header Last-Event-ID, or the query
// `after`, names the last that the client has; without either it gets those that are kept.
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

// lastEvent is the number after which the client wants events.
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
