// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// change returns a route that makes a change according to the body. The function what returns the text of the change for the audit log.
func change[B, R any](path, summary string, what func(B) string, do func(*Call, context.Context, B) (R, error)) Route {
	return posted(path, summary, Change, func(c *Call, ctx context.Context, body B) (R, error) {
		result, err := do(c, ctx, body)
		c.audit(what(body), result, err)
		return result, err
	})
}

// named returns a function that returns a constant text for the audit log, for a change without options.
func named[B any](what string) func(B) string { return func(B) string { return what } }

// audit logs a change: the user, the process and the outcome.
func (c *Call) audit(what string, result any, err error) {
	outcome, level := "done", slog.LevelInfo
	if err != nil {
		outcome, level = "failed: "+operate.Problems(err)[0].String(), slog.LevelWarn
	} else if r, ok := result.(interface{ undone() []operate.Problem }); ok && r.undone() != nil {
		outcome, level = "done, but "+r.undone()[0].String(), slog.LevelWarn
	}
	c.parts.Audit.Log(context.Background(), level, "change",
		"uid", c.by.UID, "pid", c.by.PID, "socket", c.from.String(), "what", what, "result", outcome)
	c.parts.Events.Publish(KindChange, what+": "+outcome, map[string]any{"uid": c.by.UID, "pid": c.by.PID, "socket": c.from.String()})
}

// shortened returns the first three items of a list, and the number of the remaining items.
func shortened(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], " "), len(list)-most)
}

func blockText(o operate.BlockOrder) string {
	text := "block " + shortened(o.Prefixes)
	for _, part := range [][2]string{{"set", o.Set}, {"for", o.For}, {"why", o.Why}, {"origin", o.Origin}} {
		if part[1] != "" {
			text += " " + part[0] + " " + part[1]
		}
	}
	return text
}

// block enters bans into a set, as the command does.
func (c *Call) block(ctx context.Context, o operate.BlockOrder) (operate.Changed, error) {
	sessions, known := facts.SessionsOf(c.by.PID)
	o.Sessions, o.Unseen = sessions, !known
	changed, err := c.parts.Host.BlockAll(ctx, o)
	return changed, refusedAll(changed, err)
}

func unblockText(o operate.UnblockOrder) string {
	text := "unblock " + shortened(o.Prefixes)
	if o.Origin != "" {
		text += " origin " + o.Origin
	}
	if o.Why != "" {
		text += " why " + o.Why
	}
	return text
}

func (c *Call) unblock(ctx context.Context, o operate.UnblockOrder) (operate.Changed, error) {
	changed, err := c.parts.Host.UnblockAll(ctx, o)
	return changed, refusedAll(changed, err)
}

// refusedAll returns an error when all entries of a change were refused.
func refusedAll(c operate.Changed, err error) error {
	if err != nil || c.Changed > 0 || c.Refused == 0 {
		return err
	}
	return &Error{http.StatusConflict, c.Problems[0].Text, c.Problems[0].Hint}
}

func applyText(o operate.Order) string {
	text := "apply " + o.Policy
	if o.Confirm != "" {
		text += " confirm " + o.Confirm
	}
	if o.DryRun {
		text += " as a dry run"
	}
	if o.Force {
		text += " by force"
	}
	return text
}

// Problems are actions that failed after a change was made, such as saving it for the next boot.
type Problems struct {
	Problems []operate.Problem `json:"problems,omitempty"`
}

func (p Problems) undone() []operate.Problem { return p.Problems }

// problemsOf returns the problems in an error. It returns no problems for nil.
func problemsOf(err error) (p Problems) {
	if err != nil {
		p.Problems = operate.Problems(err)
	}
	return p
}

// Applied is the result of applying a policy.
type Applied struct {
	control.Applied
	Problems
}

// Running is the running policy after a confirmation or a rollback.
type Running struct {
	control.Now
	Problems
}

// apply applies a policy file of this host, as the command does.
func (c *Call) apply(ctx context.Context, o operate.Order) (*Applied, error) {
	if !filepath.IsAbs(o.Policy) {
		return nil, &operate.OrderError{Problem: fmt.Sprintf("policy %q is not an absolute path", o.Policy),
			Remedy: "name a file on the host of the daemon, as /etc/floodwall/policy.yaml"}
	}
	if info, err := os.Stat(o.Policy); err != nil {
		return nil, fmt.Errorf("reading policy: %w", err)
	} else if !info.Mode().IsRegular() { // reading a device might never end
		return nil, &operate.OrderError{Problem: o.Policy + " is not a regular file", Remedy: "name a file with a policy"}
	}
	sessions, known := facts.SessionsOf(c.by.PID)
	if !known && !o.Force && o.Confirm == "" && !o.DryRun {
		return nil, &Error{http.StatusConflict, "the daemon may not see whether an SSH session asks, so it cannot tell whether the policy would cut it",
			`give the policy a trial, "confirm": "60s", or say "force": true`}
	}
	o.Sessions = sessions
	applied, _, err := c.parts.Host.Apply(ctx, o)
	if applied == nil {
		return nil, err
	}
	return &Applied{*applied, problemsOf(err)}, nil
}

// Nothing is the body of a change without options.
type Nothing struct{}

func (c *Call) confirm(ctx context.Context, _ Nothing) (Running, error) {
	return running(c.parts.Host.Confirm(ctx))
}

func (c *Call) rollback(ctx context.Context, _ Nothing) (Running, error) {
	return running(c.parts.Host.Rollback(ctx))
}

// running returns the running policy. An error that only concerns saving the policy for the next boot becomes a problem in the result.
func running(now control.Now, err error) (Running, error) {
	var saved *operate.SavedError
	if err != nil && !errors.As(err, &saved) {
		return Running{}, err
	}
	return Running{now, problemsOf(err)}, nil
}
