// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/policy"
)

// EndedError says that the last policy on trial was not confirmed in time, and which policy is now in force.
type EndedError struct {
	endedTrial
	now   string // the policy in force, "" when there is none
	cause error  // the error that EndedError explains: datapath.ErrExpired or datapath.ErrNotLoaded
}

// endedTrial is the stored record of a trial that timed out. It is kept when nothing of the tried policy is left in the kernel. The next apply or
// unload removes it.
type endedTrial struct {
	Generation int       `json:"generation"`
	Policy     string    `json:"policy"`
	Ended      time.Time `json:"ended"` // when the remains of the trial were found
}

// endedFor is the time for which the record is used to explain an error.
const endedFor = time.Hour

func (e *EndedError) Error() string {
	now := "nothing is filtered"
	if e.now != "" {
		now = e.now + " is in force"
	}
	return fmt.Sprintf("the trial of generation %d of %s has ended unconfirmed: %s, as before it", e.Generation, e.Policy, now)
}

// Hint is the remedy.
func (e *EndedError) Hint() string {
	again := e.Policy
	if again == policy.Stdin {
		again = "POLICY"
	}
	return fmt.Sprintf("`floodwall apply --confirm 5m %s` puts it on trial again; `floodwall confirm` has to come before its end", again)
}

// Unwrap returns the cause.
func (e *EndedError) Unwrap() error { return e.cause }

// endedFile returns the path of the record of the last trial that timed out.
func (in Instance) endedFile() string {
	return filepath.Join(in.State, instance.With("trial-ended", in.Dir, datapath.DefaultDir)+".json")
}

// keepEnded records that the trial timed out. An error here does not stop the change: it only makes a later message less precise.
func (t *transaction) keepEnded(context.Context) error {
	m := t.triedManifest()
	if t.in.State == "" || m == nil {
		return nil
	}
	text, err := json.Marshal(endedTrial{t.tried, m.File, time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		_ = safefile.Replace(t.in.endedFile(), text, 0o600)
	}
	return err
}

// triedManifest returns the manifest of the policy that was on trial, nil when it cannot be found.
func (t *transaction) triedManifest() *manifest.Manifest {
	if p, err := t.state.Open(t.tried); err == nil {
		defer p.Close()
		if m, err := manifest.Read(p.Number, p.Manifest); err == nil {
			return m
		}
	}
	records, _ := t.state.Records()
	for _, r := range records {
		if m, err := manifest.Read(r.Number, r.Manifest); err == nil && r.Number == t.tried {
			return m
		}
	}
	return nil
}

// forgetEnded removes the record, because another policy is in force or on trial.
func (t *transaction) forgetEnded(context.Context) error { return t.in.forgetEnded() }

func (in Instance) forgetEnded() error {
	if in.State == "" {
		return nil
	}
	if err := os.Remove(in.endedFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the last trial: %w", err)
	}
	return nil
}

// ended explains an error if a trial has timed out. The error cause says that nothing runs or that nothing is on trial.
func (in Instance) ended(ctx context.Context, cause error) error {
	text, err := os.ReadFile(in.endedFile())
	e := &EndedError{cause: cause}
	if in.State == "" || err != nil || json.Unmarshal(text, &e.endedTrial) != nil || time.Since(e.Ended) > endedFor {
		return cause
	}
	l, err := generation.Find(ctx, in.Dir)
	if err == nil {
		defer l.Close()
		g := l.Generations[0]
		e.now = fmt.Sprintf("generation %d of %s", g.Number, g.Manifest.File)
	} else if err != datapath.ErrNotLoaded { // the state has changed since then
		return cause
	}
	return e
}
