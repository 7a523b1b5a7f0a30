// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
	"github.com/floodwall/floodwall/policy/shorthand"
)

// editing is a run of a command that edits the policy file.
type editing struct {
	*env
	*editFlags
	command *cobra.Command
	words   []string
	host    operate.Host // not set with --no-apply
}

// open opens the policy file.
func (o *editing) open(ctx context.Context) (f *operate.PolicyFile, err error) {
	if o.noApply && o.file != "" {
		return operate.OpenPolicyFile(ctx, o.file)
	}
	if o.host, err = o.Host(); err != nil {
		return nil, err
	}
	return o.host.OpenPolicyFile(ctx, o.file)
}

// add adds an entry.
func (o *editing) add(ctx context.Context, verb shorthand.Verb) error {
	r, err := shorthand.Parse(verb, o.words)
	if err != nil {
		return err
	}
	if r.For != "" {
		return o.timed(ctx, r)
	}
	f, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	same, err := r.Find(f.Policy)
	if err != nil {
		return err
	}
	if len(same) > 0 {
		o.Println("nothing to do: %s, %s:%d, does that already", same[0].Name, f.Name, same[0].Pos.Line)
		return nil
	}
	list, entry, err := r.Entry(f.Policy)
	if err != nil {
		return err
	}
	if err := o.opened(f.Policy, r); err != nil {
		return err
	}
	at := edit.Last
	if o.before != "" {
		next := shorthand.Named(f.Policy, o.before)
		if next == nil || next.List != list {
			return wording.Errorf("`floodwall status` lists the names", "--before: %s of the policy have no %s", list, wording.Quote(o.before))
		}
		at = next.Index
	}
	text, err := edit.Insert(f.Text, list, at, entry)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return o.put(ctx, f, text, strings.TrimPrefix(entry.Keys[0], "name: "))
}

// opened returns an error for a service that opens nothing, because a rule drops all that comes for its ports, and for one that restricts nobody,
// because another one opens the same ports to everybody. It prints a note about a limit
// of ports that no service opens.
func (o *editing) opened(p *policy.Policy, r *shorthand.Request) error {
	all := *r
	all.From = ""
	if r.Verb == shorthand.Allow && r.Port != nil && o.before == "" {
		all.Verb = shorthand.Deny
		if denied, err := all.Find(p); err != nil {
			return err
		} else if len(denied) > 0 {
			return wording.Hinted(fmt.Sprintf("%s (line %d) drops all that comes for this port, and rules come before services", denied[0].Name, denied[0].Pos.Line),
				fmt.Sprintf("`floodwall delete %s` first", denied[0].Name))
		}
	}
	all.Verb = shorthand.Allow
	if all.Port == nil || r.Verb != shorthand.Limit && (r.Verb != shorthand.Allow || r.From == "") {
		return nil
	}
	open, err := all.Find(p)
	switch {
	case err != nil:
		return err
	case r.Verb == shorthand.Allow && len(open) > 0:
		return wording.Hinted(fmt.Sprintf("%s (line %d) opens this port to everybody already", open[0].Name, open[0].Pos.Line),
			fmt.Sprintf("`floodwall delete %s` first, if only %s is to reach it", open[0].Name, r.From))
	case r.Verb == shorthand.Limit && p.Default == policy.Drop && !slices.ContainsFunc(p.Services, all.Shares):
		o.Notes([]string{fmt.Sprintf("no service opens this port, so the limit passes nothing: `floodwall allow %s` opens it", strings.Join(r.Port, ","))})
	}
	return nil
}

// delete removes an entry.
func (o *editing) delete(ctx context.Context) error {
	f, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := o.find(f.Policy)
	if err != nil {
		return cli.UsageOf(o.command, err)
	}
	text, err := found.remove(f.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return o.put(ctx, f, text, found.name)
}

// removal is the part of the policy that `delete` removes.
type removal struct {
	name   string // of the entry
	remove func(text []byte) ([]byte, error)
}

func whole(f *shorthand.Found) *removal {
	return &removal{f.Name, func(text []byte) ([]byte, error) { return edit.Remove(text, f.List, f.Index) }}
}

// find returns the entry that the words of `delete` name, or the part of one.
func (o *editing) find(p *policy.Policy) (*removal, error) {
	if len(o.words) == 1 {
		if found := shorthand.Named(p, o.words[0]); found != nil {
			return whole(found), nil
		}
	}
	verb, words := shorthand.Any, o.words
	if first := shorthand.Verb(words[0]); slices.Contains(shorthand.Verbs, first) {
		verb, words = first, words[1:]
	}
	r, err := shorthand.Parse(verb, words)
	if err != nil {
		if len(o.words) == 1 {
			return nil, o.unknown(p, nil)
		}
		return nil, err
	}
	var all []removal
	found, err := r.Find(p)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if r.Name == "" || r.Name == f.Name {
			all = append(all, *whole(&f))
		}
	}
	if len(all) == 0 {
		parts, err := r.FindPart(p)
		if err != nil {
			return nil, err
		}
		for _, f := range parts {
			all = append(all, removal{f.Name, f.Remove})
		}
	}
	switch {
	case len(all) == 0:
		return nil, o.unknown(p, r)
	case len(all) > 1:
		var names []string
		for _, f := range all {
			names = append(names, f.name)
		}
		return nil, wording.Hinted(fmt.Sprintf("%s of the policy have that: %s", wording.Things(len(all), "entry", "entries"), strings.Join(names, ", ")),
			fmt.Sprintf("name one: floodwall delete %s name %s", strings.Join(o.words, " "), names[0]))
	}
	return &all[0], nil
}

// unknown returns the error for words of `delete` that no entry fits. r has their meaning, if they have one.
func (o *editing) unknown(p *policy.Policy, r *shorthand.Request) error {
	var names []string
	for _, r := range p.Rules {
		names = append(names, r.Name)
	}
	for _, s := range p.Services {
		names = append(names, s.Name)
	}
	words := strings.Join(o.words, " ")
	remedy := "`floodwall status` lists rules and services; `floodwall unblock` lifts a ban, `floodwall temporary remove` ends a temporary rule"
	if near := wording.Nearest(words, names); near != "" {
		remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	if i := slices.IndexFunc(p.Services, func(s policy.Service) bool { return r != nil && r.Shares(s) }); i >= 0 {
		s := p.Services[i]
		remedy = fmt.Sprintf("%s (line %d) has the port, with other ports or a `from`: `floodwall delete %[1]s` removes all of it", s.Name, s.Pos.Line)
	}
	return wording.Hinted(fmt.Sprintf("the policy has no rule and no service %s", wording.Quote(words)), remedy)
}

// put shows the difference, checks the new text, and puts it into the file and in force. name is the entry that is new or gone.
func (o *editing) put(ctx context.Context, f *operate.PolicyFile, text []byte, name string) error {
	c, err := f.Check(ctx, text, feed.InState(o.StateOrDefault()))
	if err != nil {
		return err
	}
	_, shown, _ := bytes.Cut(diff.Diff(f.Name, f.Text, f.Name, text), []byte("\n")) // the first line repeats the names
	o.Text(string(shown))
	said := o.newNotes(ctx, c, f)
	o.Notes(said)
	switch {
	case o.dryRun:
		o.Println("dry run: %s stays as it is", f.Name)
		return nil
	case o.noApply || f.Running == nil:
		if err := f.Write(f.Text, text); err != nil {
			return err
		}
		o.Println("wrote %s: `floodwall apply %s --confirm 60s` puts it in force", f.Name, f.Name)
		return nil
	}
	order := o.order(f, c.Policy, name)
	signal.Ignore(syscall.SIGHUP) // when the session ends during the trial, the file must get its old text back
	return o.host.ApplyEdit(ctx, f, text, order, func(a *control.Applied, p *policy.Policy) {
		o.Notes(slices.DeleteFunc(a.Notes, func(n string) bool { return slices.Contains(said, n) }))
		o.Println("%s", appliedLine(a, p, applyFlags{}))
		if order.Confirm != "" {
			o.Println("%s; this command waits, and then restores the file unless it is confirmed", trialLine(a))
		}
	})
}

// newNotes returns the notes about the new policy that the old one did not have. Line numbers in notes change with the edit and do not count.
func (o *editing) newNotes(ctx context.Context, c *control.Compiled, f *operate.PolicyFile) (list []string) {
	old := map[string]bool{}
	if before, err := f.Check(ctx, f.Text, feed.InState(o.StateOrDefault())); err == nil {
		for _, n := range checkNotes(before) {
			old[placeless(f, n)] = true
		}
	}
	for _, n := range checkNotes(c) {
		if !old[placeless(f, n)] {
			list = append(list, n)
		}
	}
	return list
}

// placeless returns a note without its place in the file.
func placeless(f *operate.PolicyFile, note string) string {
	if rest, placed := strings.CutPrefix(note, f.Name+":"); placed {
		_, note, _ = strings.Cut(rest, ": ")
	}
	return note
}
