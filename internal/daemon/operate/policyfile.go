// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// UsualPolicy is the file of the policy when no policy runs and the user names none.
const UsualPolicy = "/etc/floodwall/policy.yaml"

// PolicyFile is the file of a policy, which a command edits. Until Close no other command edits it.
type PolicyFile struct {
	Name    string // as it was named, for messages; list files are relative to its directory
	Path    string // absolute, and without symbolic links
	Text    []byte
	Policy  *policy.Policy
	Running *control.Status // the policy that runs; nil: none, or the edit is not to be applied

	info   fs.FileInfo
	unlock func()
}

// OpenPolicyFile opens a file for an edit that is not applied.
func OpenPolicyFile(ctx context.Context, file string) (*PolicyFile, error) {
	path, err := filepath.EvalSymlinks(file)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		_, err := policy.Source(file) // its error has the remedy
		return nil, err
	}
	if is, err := os.Stat(path); err == nil && !is.Mode().IsRegular() && !is.IsDir() { // it would be read without an end, and replaced by a file
		return nil, wording.Hinted(file+" is not a regular file", "name the file of the policy")
	}
	limited, cancel := context.WithTimeout(ctx, editWait)
	defer cancel()
	f := &PolicyFile{Name: file, Path: path}
	f.unlock, err = safefile.LockBeside(limited, path)
	if errors.Is(err, safefile.ErrTaken) && ctx.Err() == nil {
		err = wording.Hinted(file+": another command edits it", "wait until that is done, and any trial with it")
	}
	if err != nil {
		return nil, err
	}
	if f.Text, err = policy.Source(path); err == nil {
		f.info, err = os.Stat(path)
	}
	if err == nil {
		f.Policy, err = policy.Parse(file, f.Text)
	}
	if err != nil {
		f.unlock()
		return nil, err
	}
	return f, nil
}

// editWait is the time that a command waits for another one that edits a file.
const editWait = 10 * time.Second

// OpenPolicyFile opens the file of the policy that runs. If none runs, it opens the usual file. named is the file that the user names, "" for none.
// It must be the file of the policy that runs. The file must have the text that was applied: an edit would put all other changes of it into force, too.
func (h Host) OpenPolicyFile(ctx context.Context, named string) (f *PolicyFile, err error) {
	running, err := h.Instance.Status(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		if named == "" {
			named = UsualPolicy
		}
		return OpenPolicyFile(ctx, named)
	}
	if err != nil {
		return nil, err
	}
	of := running.Origin
	switch {
	case settled(running) != nil:
		return nil, settled(running)
	case of.File == "" && named == "":
		return nil, wording.Hinted("the policy that runs came from standard input: there is no file to edit",
			"write it to a file and `floodwall apply` that, or edit it where it comes from")
	case named == "" && h.holds(of.File):
		return nil, wording.Hinted(fmt.Sprintf("%s is in the state directory: a hub of the fleet released this policy", of.File),
			"release another version of it: `floodwall fleet push`")
	case named == "":
		named = of.File
		if here, err := filepath.Abs(running.Policy); err == nil && here == of.File { // the short name is right in this directory
			named = running.Policy
		}
	}
	if f, err = OpenPolicyFile(ctx, named); err != nil {
		return nil, err
	}
	f.Running, err = h.Instance.Status(ctx) // the command that had the file before may have applied it meanwhile
	if err == nil {
		err = settled(f.Running)
	}
	if err == nil {
		err = f.inForce()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// settled returns an error if the policy that runs is on trial, or if its text is not known.
func settled(running *control.Status) error {
	switch {
	case running.Trial != nil:
		return wording.Hinted("a policy is on trial, and stays as it is until the trial ends",
			"`floodwall confirm` or `floodwall rollback` ends the trial")
	case running.Origin == nil:
		return wording.Hinted("an earlier version applied the policy that runs, and did not keep of which text",
			"`floodwall apply FILE` once; then the file can be edited")
	}
	return nil
}

// holds reports whether a file is below the state directory, where a node has the policies of its fleet.
func (h Host) holds(file string) bool {
	state, err := filepath.Abs(h.State)
	return err == nil && strings.HasPrefix(file, state+string(filepath.Separator))
}

// inForce returns an error unless the policy that runs was applied from the text of this file.
func (f *PolicyFile) inForce() error {
	of := f.Running.Origin
	file, err := filepath.EvalSymlinks(of.File)
	switch {
	case err != nil || file != f.Path:
		return wording.Hinted(fmt.Sprintf("%s is not the file of the policy that runs, which is %s", f.Name, cmp.Or(of.File, f.Running.Policy)),
			"leave --file out, or `floodwall apply` this file first; with --no-apply it is edited all the same")
	case !of.Is(f.Text):
		applied := f.Running.Applied.Local().Format(time.DateTime)
		return wording.Hinted(fmt.Sprintf("%s is not what runs: it was changed after it was applied at %s", f.Name, applied),
			fmt.Sprintf("`floodwall apply %s --confirm 60s` puts it in force with these changes; then edit it", f.Name))
	}
	return nil
}

// Close lets other commands edit the file.
func (f *PolicyFile) Close() { f.unlock() }

// Check compiles a text of this file as `floodwall check` does. It returns the notes about the policy.
func (f *PolicyFile) Check(ctx context.Context, text []byte, feeds feed.Store) (*control.Compiled, error) {
	return periodic.Within(ctx, func() (*control.Compiled, error) {
		p, err := policy.ParseSound(f.Name, text)
		var c *control.Compiled
		c, _, err = control.Check(p, err, feeds, plan.TargetXDP)
		return c, err
	})
}

// Write replaces the text of the file. It returns an error if the file does not have the text `from` any more: another program has changed it.
func (f *PolicyFile) Write(from, to []byte) error {
	now, err := os.ReadFile(f.Path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, from) {
		return wording.Hinted(f.Name+": another program has changed it meanwhile: it stays as that left it", "repeat the command")
	}
	return safefile.ReplaceWith(f.Path, f.info.Mode().Perm(), func(next *os.File) error {
		if _, err := next.Write(to); err != nil {
			return err
		}
		if owner, ok := f.info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			return next.Chown(int(owner.Uid), int(owner.Gid))
		}
		return nil
	})
}

// ApplyEdit writes the new text, and applies it. If the policy does not come into force, or does not stay in force because its trial ends without a
// confirmation, the file gets its old text back. It returns after the end of the trial. told is called when the policy is in force. If ctx ends
// during the trial, ApplyEdit ends the trial.
func (h Host) ApplyEdit(ctx context.Context, f *PolicyFile, text []byte, o Order, told func(*control.Applied, *policy.Policy)) error {
	if err := f.Write(f.Text, text); err != nil {
		return err
	}
	o.Policy, o.Text = f.Name, text
	applied, p, err := h.Apply(ctx, o)
	if applied == nil {
		return f.restored(text, err)
	}
	told(applied, p)
	if err != nil || o.Confirm == "" {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(applied.Confirm*float64(time.Second))+lateEnd)
	defer cancel()
	stays, err := h.trialEnd(limited, text)
	if stays {
		return nil
	}
	if err == nil {
		err = wording.Hinted("the trial ended without `floodwall confirm`: the policy before is in force again",
			"repeat the command, and confirm from a second login")
	} else if s, failed := h.Instance.Status(context.WithoutCancel(ctx)); failed == nil && s.Origin.Is(text) {
		if s.Trial == nil { // confirmed at the last moment
			return nil
		}
		_, failed = h.Rollback(context.WithoutCancel(ctx))
		err = errors.Join(err, failed)
	}
	return f.restored(text, err)
}

// restored gives the file its old text back, and returns the cause.
func (f *PolicyFile) restored(text []byte, cause error) error {
	if err := f.Write(text, f.Text); err != nil {
		return errors.Join(cause, wording.Hinted(fmt.Sprintf("the file does not get its old text back: %v", err),
			"take the edit out of the file by hand: the next `floodwall apply` would put it in force"))
	}
	return cause
}

// trialEnd waits for the end of the trial of a text. It reports whether the text stays in force. ctx ends the wait.
func (h Host) trialEnd(ctx context.Context, text []byte) (stays bool, err error) {
	for {
		s, err := h.Instance.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, datapath.ErrNotLoaded) || err == nil && !s.Origin.Is(text):
			return false, nil
		case err == nil && s.Trial == nil:
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(trialLook):
		}
	}
}

// lateEnd is the time after which trialEnd gives up if the state cannot be read when the trial has ended.
const lateEnd = time.Minute

// trialLook is the interval at which trialEnd looks at the trial.
const trialLook = 300 * time.Millisecond
