// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// load is a group of clients that use an echo server all the time. Some use one connection, others open a new one each time.
type load struct {
	*synScene
	stop    chan struct{}
	group   sync.WaitGroup
	opened  atomic.Int64 // the number of connections
	words   atomic.Int64 // the number of texts that came back on lasting connections
	stage   atomic.Value // the current step of the test, for error messages
	mu      sync.Mutex
	wrong   []string
	skipped int
}

// newLoad starts clients on the first client host: lasting clients with one connection each, and short clients that open new ones. The caller must
// call end.
func (s *synScene) newLoad(lasting, short int) *load {
	l := &load{synScene: s, stop: make(chan struct{})}
	l.stage.Store("the beginning")
	for i := range lasting {
		l.group.Go(func() { l.last(s.clients[0], servers[i%2]) })
	}
	for i := range short {
		l.group.Go(func() {
			for !l.over() {
				l.opened.Add(1)
				l.note(s.visitEcho(s.clients[0], servers[i%2]), "a new connection")
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return l
}

// last exchanges texts over one connection until the load ends.
func (l *load) last(from *lab.Host, to netip.AddrPort) {
	c, err := l.dial(from, to)
	if err != nil {
		l.note(err, "the first connection")
		return
	}
	defer c.Close()
	for n := 0; !l.over(); n++ {
		if err := converse(c, fmt.Sprintf("word %d from %s", n, c.LocalAddr())); err != nil {
			l.note(err, "a lasting connection")
			return
		}
		l.words.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
}

func (l *load) over() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

const shownWrong = 20

func (l *load) note(err error, what string) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) == shownWrong {
		l.skipped++
		return
	}
	l.wrong = append(l.wrong, fmt.Sprintf("%s: during %s, %s: %v", l.mode, l.stage.Load(), what, err))
}

// during sets the name of the current step of the test.
func (l *load) during(format string, args ...any) {
	l.stage.Store(fmt.Sprintf(format, args...))
}

// while waits for the time least, and then until both kinds of clients have made progress.
func (l *load) while(least time.Duration) {
	opened, words := l.opened.Load(), l.words.Load()
	time.Sleep(least)
	for end := time.Now().Add(synPatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if l.opened.Load() > opened && l.words.Load() > words {
			return
		}
	}
	l.note(fmt.Errorf("%d connections, %d words", l.opened.Load()-opened, l.words.Load()-words), "it stands still")
}

// end stops the clients. None of them may have failed.
func (l *load) end() {
	l.Helper()
	close(l.stop)
	l.group.Wait()
	for _, w := range slices.Compact(l.wrong) {
		l.Error(w)
	}
	if l.skipped > 0 {
		l.Errorf("and %d more", l.skipped)
	}
	l.Logf("%d connections, and %d words over lasting ones", l.opened.Load(), l.words.Load())
}
