package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
)

// looseFile says whether conntrack takes a packet from the middle of a TCP connection that it does not know for one of a
// connection. While SYNPROXY stands in front of a service it must not: the packet that brings a cookie back would be
// taken for that, and go on to a server that knows nothing of it.
const looseFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// strict reports whether a generation needs conntrack to be strict.
func (m *manifest) strict() bool {
	return m != nil && slices.ContainsFunc(m.Protections, func(e protectionEntry) bool { return e.Method == methodNames[compile.MethodRouter] })
}

// loose is what looseFile says, nil when there is no conntrack.
func loose() (*int, error) {
	text, err := os.ReadFile(looseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("whether conntrack is strict: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", looseFile, err)
	}
	return &n, nil
}

func setLoose(n int) error {
	if err := os.WriteFile(looseFile, []byte(strconv.Itoa(n)), 0o644); err != nil {
		return fmt.Errorf("setting whether conntrack is strict: %w", err)
	}
	return nil
}

// rememberLoose notes in the manifest what the host had before a row of generations of which one needs conntrack to be
// strict.
func (a *apply) rememberLoose() (err error) {
	if a.before != nil {
		a.manifest.Loose = a.before.manifest.Loose
	}
	if !a.manifest.strict() || a.before != nil && a.before.manifest.strict() {
		return nil
	}
	if sysctl("netfilter/nf_conntrack_count", 0)[0] == 0 {
		a.notes = append(a.notes, "conntrack has no connections yet, so those that stand with protected services behind this host will "+
			"be unknown to it and end: to spare them, load some rule that asks for `ct state` an hour before")
	}
	if a.manifest.Loose == nil {
		a.manifest.Loose, err = loose()
	}
	return err
}

// becomeStrict makes conntrack strict for the generation that is about to decide, and has undo bring back what was. Its
// first rule in netfilter may have begun conntrack, which then knew nothing before.
func (s *switchover) becomeStrict() error {
	was, err := loose()
	if !s.manifest.strict() || was == nil || *was == 0 || err != nil {
		return err
	}
	s.done = append(s.done, func() error { return setLoose(*was) })
	return setLoose(0)
}

// loadStrictly loads the parts in netfilter with conntrack strict before any of them decides. Where there was no conntrack
// before, it comes with them.
func (s *switchover) loadStrictly(ctx context.Context) error {
	if err := s.becomeStrict(); err != nil {
		return err
	}
	if err := s.loadParts(ctx); err != nil {
		return err
	}
	return s.becomeStrict()
}

// strictFor makes conntrack as strict as the generation needs that decides now, after others that may have needed it.
func strictFor(now *manifest, others ...*manifest) error {
	if now.strict() {
		return setLoose(0)
	}
	for _, m := range append(others, now) {
		if m != nil && m.Loose != nil {
			return setLoose(*m.Loose)
		}
	}
	return nil
}
