// SPDX-License-Identifier: Apache-2.0

// This file releases a policy to the nodes of a fleet: first to the canaries, and to the other nodes when the canaries work well. In: a directory or
// an earlier version, and the key. Out: orders that the hubs distribute, and the results.
//
// The key stays on the host that releases. A release needs the running command: if the command ends early, only the canaries have the version.

package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Hubs are the hubs of a fleet.
type Hubs interface {
	Order(ctx context.Context, version uint64) ([]byte, error)
	Put(ctx context.Context, was, order []byte, version uint64, content map[string][]byte) error
	File(ctx context.Context, f File) ([]byte, error)
	States(ctx context.Context) (map[string]wire.PolicyState, error)
}

// Plan describes how to release a policy.
type Plan struct {
	Key    nkeys.KeyPair
	Canary []string // names of nodes; none: all nodes at once
	Trial  time.Duration
	Pause  time.Duration // how long the canaries are watched before the other nodes follow
	Note   string
	Least  uint64 // the new version is greater than this one; it is stored because the hubs may hide the last version
	NewKey bool   // the current order may be signed by another key, which this key replaces

	Tell func(text string)
	Took func(version uint64) error // records the version before a hub gets it
}

// patience is the time that nodes may need in addition to a trial, to load the files and to report.
const patience = 2 * time.Minute

// lookEvery is the time between two reads of the nodes' states.
const lookEvery = time.Second

// stale is the greatest age of a canary's state that counts as a report.
const stale = 30.0 // seconds

// Push releases a directory. It returns the version.
func Push(ctx context.Context, h Hubs, dir string, p Plan) (uint64, error) {
	files, content, err := ReadDir(dir)
	if err != nil {
		return 0, err
	}
	was, head, err := p.head(ctx, h)
	if err != nil {
		return 0, err
	}
	return p.release(ctx, h, was, head, files, content)
}

// Rollback releases the files of an earlier version, as a new version. With version 0, it uses the last version whose files differ from the current
// files. After a rollback, this would be the version before the rollback; the caller must then name a version.
func Rollback(ctx context.Context, h Hubs, version uint64, p Plan) (uint64, error) {
	was, head, err := p.head(ctx, h)
	if err != nil {
		return 0, err
	}
	if head == nil {
		return 0, wording.Hinted("no policy was released to this fleet", "`floodwall-hub fleet push DIRECTORY` releases one")
	}
	m, err := p.earlier(ctx, h, head, version)
	if err != nil {
		return 0, err
	}
	content := map[string][]byte{}
	for _, f := range m.Files {
		b, err := h.File(ctx, f)
		if err == nil && Sum(b) != f.Sum {
			err = errors.New("it is not what was signed")
		}
		if err != nil {
			return 0, wording.Hinted(fmt.Sprintf("the hubs do not have %s of version %d: %v", f.Name, m.Version, err), "push the directory of that version again")
		}
		content[f.Sum] = b
	}
	p.Tell(fmt.Sprintf("version %d has the files of version %d", max(head.Version, p.Least)+1, m.Version))
	return p.release(ctx, h, was, head, m.Files, content)
}

// maxBack is the number of versions that are searched for the last one with other files.
const maxBack = 50

func (p *Plan) earlier(ctx context.Context, h Hubs, head *Manifest, version uint64) (*Manifest, error) {
	first, last := version, version
	if version == 0 {
		first, last = head.Version-1, head.Version-min(head.Version-1, maxBack)
	}
	var found *Manifest
	for v := first; v >= last && v > 0; v-- {
		order, err := h.Order(ctx, v)
		if err != nil {
			return nil, err
		}
		m, err := p.signed(order)
		switch {
		case err != nil:
			p.Tell(fmt.Sprintf("version %d is passed by, as its order at the hubs cannot be read: %v", v, err))
		case m == nil || m.Version != v:
		case version > 0:
			return m, nil
		case found == nil && m.Content() != head.Content():
			found = m
		case found != nil && m.Content() == head.Content():
			return nil, wording.Hinted(fmt.Sprintf("version %d has the files of version %d again: it is a rollback from version %d", head.Version, v, found.Version),
				"name the version whose files shall come back with --to")
		}
	}
	if found == nil {
		return nil, wording.Hinted("the hubs have no earlier version with other files", "push the directory of the policy again")
	}
	return found, nil
}

// signed opens the order of an earlier version. It returns nil when there is no order, or when the order is signed by a key that this key has
// replaced.
func (p *Plan) signed(order []byte) (*Manifest, error) {
	if order == nil {
		return nil, nil
	}
	m, err := p.open(order)
	if err == errOtherKey {
		return nil, nil
	}
	return m, err
}

func (p *Plan) open(order []byte) (*Manifest, error) {
	public, err := p.Key.PublicKey()
	if err != nil {
		return nil, err
	}
	m, err := Open(order, public)
	if errors.Is(err, ErrNotSigned) {
		return nil, errOtherKey
	}
	return m, err
}

var errOtherKey = wording.Hinted("the policy at the hubs is signed by another key",
	"name the key of this fleet with --key; if that is lost, give each node a new one (`floodwall fleet trust`), and push with --new-key")

// head returns the current order and its manifest, or nil when there is none. It ignores an order that this key has not signed, if this key has
// signed an earlier version at the hubs: such an order was published at the hubs without the key.
func (p *Plan) head(ctx context.Context, h Hubs) (order []byte, m *Manifest, err error) {
	if order, err = h.Order(ctx, 0); err != nil || order == nil {
		return nil, nil, err
	}
	if m, err = p.open(order); err == nil {
		return order, m, nil
	}
	known, lookErr := p.last(ctx, h)
	switch {
	case lookErr != nil:
		return nil, nil, lookErr
	case known != nil:
		p.Tell(fmt.Sprintf("the order that counts at the hubs is passed by, as this key has not signed it (%s); version %d is the last that it has: "+
			"see who has admin.nk of a hub", unsigned(err), known.Version))
		return order, known, nil
	case p.NewKey:
		return order, nil, nil
	case err != errOtherKey:
		err = wording.Hinted(fmt.Sprintf("the order that counts at the hubs cannot be read: %v", err), errOtherKey.Remedy)
	}
	return nil, nil, err
}

// unsigned returns the reason why an order is ignored.
func unsigned(err error) string {
	if err == errOtherKey {
		return "it is changed, or of another key"
	}
	return err.Error()
}

// last returns the manifest with the greatest version at the hubs that this key has signed.
func (p *Plan) last(ctx context.Context, h Hubs) (*Manifest, error) {
	for v := p.Least; v > 0 && v+maxBack > p.Least; v-- {
		order, err := h.Order(ctx, v)
		if err != nil {
			return nil, err
		}
		if order == nil {
			continue
		}
		if m, err := p.open(order); err == nil && m.Version == v {
			return m, nil
		}
	}
	return nil, nil
}

// release releases files in stages.
func (p *Plan) release(ctx context.Context, h Hubs, was []byte, head *Manifest, files []File, content map[string][]byte) (uint64, error) {
	m := &Manifest{Version: p.Least + 1, Stage: All, Confirm: int(p.Trial / time.Second), Made: time.Now().UTC().Truncate(time.Second), Note: p.Note, Files: files}
	if head != nil {
		m.Version = max(m.Version, head.Version+1)
	}
	if len(p.Canary) > 0 {
		m.Stage, m.Canary = Canary, p.Canary
		states, err := h.States(ctx)
		if err != nil {
			return 0, err
		}
		for _, name := range p.Canary {
			if s, ok := states[name]; !ok || s.Age > stale {
				return 0, wording.Hinted(fmt.Sprintf("canary %s does not report to the hubs", name),
					"see `floodwall-hub fleet status`; a node takes policies when its daemon runs and it was given the key (`floodwall fleet trust`)")
			}
		}
	}
	if err := p.Took(m.Version); err != nil {
		return 0, err
	}
	was, err := p.put(ctx, h, was, m, content)
	if err != nil || m.Stage == All {
		return m.Version, err
	}
	p.Tell(fmt.Sprintf("version %d is at the canaries: %s", m.Version, strings.Join(p.Canary, ", ")))
	if err := p.await(ctx, h, m); err != nil {
		return m.Version, p.left(m, err)
	}
	p.Tell(fmt.Sprintf("version %d runs on the canaries, and is watched for %v", m.Version, p.Pause))
	if err := p.watch(ctx, h, m); err != nil {
		return m.Version, p.left(m, err)
	}
	m.Stage = All
	_, err = p.put(ctx, h, was, m, nil)
	return m.Version, err
}

func (p *Plan) put(ctx context.Context, h Hubs, was []byte, m *Manifest, content map[string][]byte) (order []byte, err error) {
	if order, err = Sign(m, p.Key); err != nil {
		return nil, err
	}
	if err := h.Put(ctx, was, order, m.Version, content); err != nil {
		return nil, err
	}
	if m.Stage == All {
		p.Tell(fmt.Sprintf("version %d is released to all nodes", m.Version))
	}
	return order, nil
}

// haltError is the error when the canaries' state ends a release. It names the nodes that have the version.
type haltError struct{ *wording.HintError }

func halted(version uint64, format string, args ...any) error {
	return haltError{wording.Hinted(fmt.Sprintf("version %d goes to no other node: ", version)+fmt.Sprintf(format, args...),
		"mend the policy and push it; `floodwall-hub fleet rollback` releases the files of the version before")}
}

// left adds the names of the nodes that have a version to an error. It is for a release that ends for another reason than the canaries.
func (p *Plan) left(m *Manifest, err error) error {
	if !errors.As(err, new(haltError)) {
		p.Tell(fmt.Sprintf("version %d stays at the canaries, and goes to no other node: %s", m.Version, strings.Join(m.Canary, ", ")))
	}
	return err
}

// each reads the states of the nodes periodically, until done returns true.
func each(ctx context.Context, h Hubs, done func(map[string]wire.PolicyState) (bool, error)) error {
	for {
		states, err := h.States(ctx)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if ok, err := done(states); ok || err != nil {
			return err
		}
		if !periodic.Sleep(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

// await waits until all canaries run the version.
func (p *Plan) await(ctx context.Context, h Hubs, m *Manifest) error {
	end := time.Now().Add(p.Trial + patience)
	return each(ctx, h, func(states map[string]wire.PolicyState) (bool, error) {
		late := []string{}
		for _, name := range m.Canary {
			s := states[name]
			switch {
			case s.Version == m.Version && s.Phase == wire.Failed:
				return false, halted(m.Version, "canary %s: %s", name, s.Problem)
			case s.Version > m.Version:
				return false, halted(m.Version, "canary %s has version %d", name, s.Version)
			case s.Runs != m.Version:
				late = append(late, name)
			}
		}
		if len(late) > 0 && time.Now().After(end) {
			s := states[late[0]]
			return false, halted(m.Version, "canary %s has not taken it in time (phase %q): %s", late[0], s.Phase, s.Problem)
		}
		return len(late) == 0, nil
	})
}

// watch returns an error unless the canaries stay well during the pause, and have reported at its end.
func (p *Plan) watch(ctx context.Context, h Hubs, m *Manifest) error {
	end := time.Now().Add(p.Pause)
	return each(ctx, h, func(states map[string]wire.PolicyState) (bool, error) {
		for _, name := range m.Canary {
			if err := well(states[name], m); err != nil {
				return false, halted(m.Version, "canary %s: %v", name, err)
			}
		}
		return !time.Now().Before(end), nil
	})
}

// well returns an error if a canary does not work well with the version.
func well(s wire.PolicyState, m *Manifest) error {
	switch {
	case s.Age > stale:
		return fmt.Errorf("no hub has heard of it for %.0f s", s.Age)
	case s.Runs != m.Version || s.Phase != wire.Runs:
		return fmt.Errorf("version %d runs, phase %q: %s", s.Runs, s.Phase, s.Problem)
	case s.Drift != "":
		return errors.New(s.Drift)
	case !s.Healthy:
		return errors.New("the policy is not in force: see `floodwall status` there")
	}
	return nil
}

// Await waits until every node that reports has accepted or refused a version. It returns the nodes that do not run the version.
func Await(ctx context.Context, h Hubs, version uint64, trial time.Duration) (without []string, err error) {
	end := time.Now().Add(trial + patience)
	err = each(ctx, h, func(states map[string]wire.PolicyState) (bool, error) {
		without = without[:0]
		open := false
		for _, name := range slices.Sorted(maps.Keys(states)) {
			s := states[name]
			if s.Runs == version || s.Age > stale {
				continue
			}
			without = append(without, name)
			open = open || s.Version < version || s.Phase != wire.Failed
		}
		return !open || time.Now().After(end), nil
	})
	return without, err
}
