// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// onFlags are the flags of on.
type onFlags struct {
	policy  string
	confirm string
	trial   time.Duration // parsed from confirm
	yes     bool
	dryRun  bool
}

func onCommand(e *env) *cobra.Command {
	f := onFlags{confirm: "60s"}
	c := &cobra.Command{
		Use:        "on [DEVICE...]",
		SuggestFor: []string{"start", "enable"},
		Short:      "filter this host: survey it, ask once, try the policy, and keep it",
		Long: "On surveys this host, says what it will do, and asks once. Then it applies the policy on trial, and keeps it when you press Enter.\n" +
			"Without Enter, or when your connection is lost, the kernel returns to the previous state by itself.",
		Example:   "  floodwall on --dry-run    # says what it would do, and changes nothing\n  floodwall on",
		ValidArgs: deviceNames(),
		RunE: func(c *cobra.Command, devices []string) (err error) {
			apply := applyFlags{devices: devices, confirm: f.confirm, target: string(control.TargetAuto)}
			if err := apply.check(c); err != nil {
				return err
			}
			if f.policy == "" {
				return cli.Usagef(c, "leave it out, or name a file", "--policy names no file")
			}
			if f.policy, err = filepath.Abs(f.policy); err != nil { // off, run elsewhere, names the file
				return err
			}
			f.trial = cmp.Or(apply.trial, time.Minute) // 0: the default
			ctx := c.Context()
			if !signal.Ignored(unix.SIGHUP) { // as under nohup
				var stop func()
				ctx, stop = signal.NotifyContext(ctx, unix.SIGHUP) // the terminal is gone
				defer stop()
			}
			return turnOn(ctx, e, devices, f)
		},
	}
	c.Flags().StringVar(&f.policy, "policy", operate.UsualPolicy, "`file` of the policy; one that exists is used as it is")
	c.Flags().StringVar(&f.confirm, "confirm", f.confirm, "return to the previous state after this `time`, as 60s or 5m, without Enter")
	c.Flags().BoolVar(&f.yes, "yes", false, "ask nothing, and keep the policy if a new connection from your address passes")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	return c
}

// turnOn runs the steps of on. Until it has asked, it changes nothing.
func turnOn(ctx context.Context, e *env, devices []string, f onFlags) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	s, err := surveyFor(ctx, h, devices, f)
	if err != nil {
		return unforced(err)
	}
	for _, line := range s.lines() {
		e.Println("%s", line)
	}
	if f.dryRun {
		e.Println("dry run: nothing is changed")
		return nil
	}
	in := &keyboard{from: e.Stdin, lines: bufio.NewReader(e.Stdin)}
	if !f.yes {
		if err := agreed(ctx, e, in, f); err != nil {
			return err
		}
	}
	unwrite, err := s.write()
	if err != nil {
		return err
	}
	applied, err := apply(ctx, e, f.policy, applyFlags{devices: s.override, confirm: f.confirm, trial: f.trial, boot: true, later: true})
	if applied == nil {
		return errors.Join(unforced(err), unwrite(ctx, e, h))
	}
	t := trial{env: e, host: h, in: in, applied: applied, devices: s.devices, sessions: s.sessions}
	t.host.Instance = h.Only(applied.Boot)
	if err == nil {
		err = t.wait(ctx, f.yes)
	}
	ctx = context.WithoutCancel(ctx)
	var unsaved *operate.SavedError // the policy is confirmed, but not for the next boot
	if err != nil && !errors.As(err, &unsaved) {
		kept, back := t.goBack(ctx)
		if !kept {
			return errors.Join(err, back, unwrite(ctx, e, h))
		}
		err = nil
	}
	return errors.Join(err, enable(ctx, e, h, s))
}

// unforced removes the flag of apply from the remedy of a lockout, because on has no such flag.
func unforced(err error) error {
	var lockout *control.LockoutError
	if errors.As(err, &lockout) {
		return wording.WithHint(err, strings.TrimSuffix(lockout.Hint(), ", or use --force"))
	}
	return err
}

// agreed asks whether to go on. It returns an error unless the answer is yes.
func agreed(ctx context.Context, e *env, in *keyboard, f onFlags) error {
	e.Text(fmt.Sprintf("apply it, on trial for %s? [y/N] ", f.confirm))
	answer, err := in.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		e.Text("\n")
		return wording.Hinted("standard input has ended without an answer: nothing is changed", "run it at a terminal, or with --yes")
	case err != nil:
		e.Text("\n")
		return err
	case answer != "y" && answer != "yes":
		e.Println("nothing is changed")
		return cli.ErrFailed
	}
	return nil
}

// keyboard reads lines that the operator enters. It reads a line only when it is asked for one.
type keyboard struct {
	from  io.Reader
	lines *bufio.Reader
}

// next returns the next line, without spaces and in lower case.
func (a *keyboard) next(ctx context.Context) (string, error) {
	return periodic.Within(ctx, func() (string, error) {
		line, err := a.lines.ReadString('\n')
		return strings.ToLower(strings.TrimSpace(line)), err
	})
}

// flush discards what was entered before, if the input is a terminal.
func (a *keyboard) flush() {
	if file, ok := a.from.(*os.File); ok && unix.IoctlSetInt(int(file.Fd()), unix.TCFLSH, unix.TCIFLUSH) == nil {
		a.lines.Reset(a.from)
	}
}

// trial is a policy on trial that waits for Enter.
type trial struct {
	*env
	host     operate.Host
	in       *keyboard
	applied  *control.Applied
	devices  []string
	sessions []facts.Session
}

// wait waits for Enter, and confirms the policy. Enter comes by a connection that exists already, so it proves nothing about new ones. So wait also
// asks the loaded program about a new connection from the same address. With yes it only asks the program. If it returns an error, the policy is still
// on trial, unless another command has confirmed it.
func (t *trial) wait(ctx context.Context, yes bool) error {
	left := time.Duration(t.applied.Confirm * float64(time.Second))
	if !yes {
		t.in.flush() // a key that was pressed before the policy was in force says nothing about it
		t.Text(fmt.Sprintf("press Enter within %.0f s to keep it; Ctrl-C goes back at once: ", left.Seconds()))
		limited, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		_, err := t.in.next(limited)
		if err != nil {
			t.Text("\n")
		}
		switch {
		case errors.Is(err, io.EOF):
			return wording.Hinted("standard input has ended without Enter: the policy is not kept", "run it at a terminal, or with --yes")
		case errors.Is(err, context.DeadlineExceeded):
			return wording.Hinted("Enter did not come in time: the policy is not kept", "if your connection stood still, the policy is the cause: `floodwall on --dry-run` says what it closes")
		case err != nil:
			return err
		}
	}
	if err := t.host.Admits(ctx, t.sessions, t.devices); err != nil {
		return unforced(err)
	}
	for _, s := range t.sessions {
		if s.Client.Addr().IsLoopback() {
			continue // no packet of the session arrives at a device that is filtered, so nothing was asked
		}
		t.Println("a new connection from %s to port %d passes", s.Client.Addr(), s.Server.Port())
	}
	return confirm(context.WithoutCancel(ctx), t.env, t.host)
}

// goBack ends the trial, or cleans up behind one that has ended by itself. It changes no policy that another command has applied since. kept is true
// if another command has confirmed the policy.
func (t *trial) goBack(ctx context.Context) (kept bool, err error) {
	s, err := t.host.Instance.Status(ctx)
	if err == nil && s.Boot == t.applied.Boot {
		if s.Trial != nil {
			err = rollback(ctx, t.env, t.host)
		}
		switch {
		case s.Trial == nil || errors.Is(err, datapath.ErrNoTrial):
			t.Println("another command has confirmed generation %d: it stays", s.Generation)
			return true, nil
		case !errors.Is(err, control.ErrOther) && !errors.Is(err, datapath.ErrNotLoaded):
			return false, err
		}
	}
	_, err = t.host.FinishTrial(ctx)
	switch s, none := t.host.Instance.Status(ctx); {
	case none == nil && s.Generation == t.applied.Returns:
		t.Println("the trial is over: generation %d of %s runs, as before", s.Generation, s.Policy)
	case none == nil:
		t.Println("the trial is over: another command has applied generation %d of %s, which runs", s.Generation, s.Policy)
	case errors.Is(none, datapath.ErrNotLoaded):
		t.Println("the trial is over: nothing is filtered, as before")
	}
	return false, err
}

// write writes the first policy. A policy that exists stays as it is. unwrite removes the file again, unless another program has changed it, or the
// running policy may be of it.
func (s *survey) write() (unwrite func(context.Context, *env, operate.Host) error, err error) {
	if s.stands {
		return func(context.Context, *env, operate.Host) error { return nil }, nil
	}
	dir := filepath.Dir(s.file)
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	err = safefile.Create(s.file, s.text, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, wording.Hinted(fmt.Sprintf("%s exists since a moment ago: nothing is changed", s.file), "run `floodwall on` again, which reads it")
	}
	return func(ctx context.Context, e *env, h operate.Host) error {
		if now, err := os.ReadFile(s.file); err != nil || !bytes.Equal(now, s.text) {
			return nil
		}
		switch runs, err := h.Instance.Status(context.WithoutCancel(ctx)); {
		case errors.Is(err, datapath.ErrNotLoaded):
		case err != nil, runs.Origin == nil, runs.Origin.File == s.file:
			return nil
		}
		if err := os.Remove(s.file); err != nil {
			return fmt.Errorf("the policy's file stays: %w", err)
		}
		if missing != nil {
			_ = os.Remove(dir) // it stays if another program has put a file there
		}
		e.Println("%s is removed again: `floodwall init` writes such a policy for you to read", s.file)
		return nil
	}, err
}

// enable has systemd load the policy after each reboot and run the daemon, and says where to look from now on.
func enable(ctx context.Context, e *env, h operate.Host, s *survey) error {
	notes, err := h.Enable(ctx, s.devices)
	var none *boot.NoSystemdError
	switch {
	case errors.As(err, &none):
		e.Println("%s", row("left out", none.Error()))
		e.Println("%s", row("", none.Hint()))
		e.Println("%s", row("", "the daemon, and its page: run `floodwall daemon` as a service of the host's init"))
	case err != nil:
		return wording.WithHint(fmt.Errorf("the policy runs and is kept, but not after a reboot: %w", err), "`floodwall on` tries again")
	case !boot.Running():
		e.Notes(notes)
		e.Println("%s", row("systemd", "does not run here: when it does, it loads the policy at each boot, and runs the daemon"))
	default:
		e.Notes(notes)
		e.Println("%s", row("systemd", "loads it at each boot, and runs the daemon: floodwall.service"))
		for i, line := range e.page(ctx, h, s.sessions) {
			e.Println("%s", row(map[bool]string{true: "page"}[i == 0], line))
		}
	}
	e.Println("%s", row("every day", "floodwall status      what passed, and what was dropped"))
	if s.policy.Daemon.Detect.On {
		e.Println("%s", row("", "floodwall attacks     which attacks came, and of what kind"))
	}
	e.Println("%s", row("", "floodwall deny PORT   closes a port, and floodwall allow PORT opens one"))
	e.Println("%s", row("", "floodwall block ADDRESS --for 1h"))
	e.Println("%s", row("", "floodwall off         ends all of this, and `"+onWith(s.file)+"` brings it back"))
	return nil
}

// page says how to open the page of the daemon.
func (e *env) page(ctx context.Context, h operate.Host, sessions []facts.Session) []string {
	if d, err := h.DaemonSettings(ctx); err == nil && d.Page() != "" {
		return []string{d.Page()}
	}
	server := "SERVER"
	for _, s := range sessions {
		server = s.Server.Addr().String()
	}
	return []string{"http://127.0.0.1:9810/ on your own machine, while this runs there:", fmt.Sprintf("ssh -N -L 9810:%s root@%s", e.daemonSocket(), server)}
}
