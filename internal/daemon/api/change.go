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

// change is a route that changes what runs, as the body says. what names the change in the audit.
func change[B, R any](path, summary string, what func(B) string, do func(*Call, context.Context, B) (R, error)) Route {
	return posted(path, summary, Change, func(c *Call, ctx context.Context, body B) (R, error) {
		result, err := do(c, ctx, body)
		c.audit(what(body), result, err)
		return result, err
	})
}

// named is the name of a change that has no choices.
func named[B any](what string) func(B) string { return func(B) string { return what } }

// audit writes who changed what, and what came of it.
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

// shortened names the first of many.
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

// block blocks at once, as the command does.
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

// refusedAll makes an error of a change of nothing.
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

// Problems are what did not follow from a change that is done, as saving it for the next boot.
type Problems struct {
	Problems []operate.Problem `json:"problems,omitempty"`
}

func (p Problems) undone() []operate.Problem { return p.Problems }

// problemsOf are those that an error tells of, none for nil.
func problemsOf(err error) (p Problems) {
	if err != nil {
		p.Problems = operate.Problems(err)
	}
	return p
}

// Applied is what came of an apply.
type Applied struct {
	control.Applied
	Problems
}

// Running is what runs after a confirm or rollback.
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
	} else if !info.Mode().IsRegular() { // a device has no end
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

// Nothing is the body of a change that has no choices.
type Nothing struct{}

func (c *Call) confirm(ctx context.Context, _ Nothing) (Running, error) {
	return running(c.parts.Host.Confirm(ctx))
}

func (c *Call) rollback(ctx context.Context, _ Nothing) (Running, error) {
	return running(c.parts.Host.Rollback(ctx))
}

// running is the answer when a policy runs, also when that could not be saved for the next boot.
func running(now control.Now, err error) (Running, error) {
	var saved *operate.SavedError
	if err != nil && !errors.As(err, &saved) {
		return Running{}, err
	}
	return Running{now, problemsOf(err)}, nil
}
