// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/policy"
)

// Side is the daemon's end of the socket of `floodwall-bgp`.
type Side struct {
	RunningPolicy func(context.Context) (control.RunningPolicy, error) // reads the running policy
	Book          Book
	Dir           string // directory with the socket of `floodwall-bgp`
}

// ErrNone is the error when the running policy has no routers upstream.
var ErrNone = errors.New("the policy that runs has no `upstream`")

// Policy returns the running policy's settings for the routers, or ErrNone when it has none.
func (s Side) Policy(ctx context.Context) (*policy.Upstream, error) {
	w, err := s.RunningPolicy(ctx)
	if err != nil {
		return nil, err
	}
	if w.Daemon.Upstream == nil {
		return nil, ErrNone
	}
	return w.Daemon.Upstream, nil
}

// Tell sends the wanted sessions and announcements to the process. It sends no session when the policy names no routers. A router whose password
// cannot be read gets no session. Tell sends the rest, and then returns the error.
//
// The book stays locked during Tell. Otherwise two callers could read the book in one order and send in the other, so that the older content is sent
// last.
func (s Side) Tell(ctx context.Context) (st wire.Status, err error) {
	err = s.Book.Hold(ctx, time.Now(), func(list []wire.Announcement) (err error) {
		st, err = s.tell(ctx, list)
		return err
	})
	return st, err
}

func (s Side) tell(ctx context.Context, list []wire.Announcement) (st wire.Status, err error) {
	wanted := &wire.Wanted{Announcements: []wire.Announcement{}}
	var problems error
	u, err := s.Policy(ctx)
	switch {
	case errors.Is(err, ErrNone), errors.Is(err, datapath.ErrNotLoaded):
		if s.alone() {
			return st, nil
		}
	case err != nil:
		return st, err
	default:
		wanted, problems = wantedOf(u, list)
	}
	st, err = wire.NewClient(s.Dir).Put(ctx, wanted)
	return st, errors.Join(problems, err)
}

// alone reports whether the process is not running.
func (s Side) alone() bool {
	_, err := os.Stat(filepath.Join(s.Dir, wire.Socket))
	return errors.Is(err, fs.ErrNotExist)
}

// wantedOf combines a policy and a book. It omits announcements that the policy no longer allows.
func wantedOf(u *policy.Upstream, book []wire.Announcement) (w *wire.Wanted, problems error) {
	own := *u
	w = &wire.Wanted{Upstream: &own, Passwords: map[string]string{}, Announcements: []wire.Announcement{}}
	own.Peers = slices.DeleteFunc(slices.Clone(u.Peers), func(p policy.Peer) bool {
		if p.Password == "" {
			return false
		}
		word, err := safefile.Read(p.Password)
		if err == nil && len(word) > longestPassword {
			err = fmt.Errorf("%s has %d bytes, more than the %d that the kernel takes", p.Password, len(word), longestPassword)
		}
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("no session with %s: %w", p.Address, err))
			return true
		}
		w.Passwords[p.Address.String()] = word
		return false
	})
	if len(own.Peers) == 0 {
		return &wire.Wanted{Announcements: []wire.Announcement{}}, problems
	}
	if u.Live {
		for _, a := range book {
			if a.Check(u) == nil {
				w.Announcements = append(w.Announcements, a)
			}
		}
	}
	return w, problems
}

// longestPassword is TCP_MD5SIG_MAXKEYLEN, in bytes.
const longestPassword = 80

// Keep calls Tell periodically until ctx ends. It reports the same error once.
func (s Side) Keep(ctx context.Context, report func(error)) {
	told := ""
	periodic.Run(ctx, time.Second, func() {
		_, err := s.Policy(ctx)
		if nobody := errors.Is(err, ErrNone) && s.alone(); nobody { // true on most hosts; then the book need not be read
			err = nil
		} else {
			_, err = s.Tell(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			report(fmt.Errorf("upstream: %w", err))
		}
	})
}
