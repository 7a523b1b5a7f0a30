package main

import (
	"context"
	"errors"
	"math/bits"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/policy"
)

func checkCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "check POLICY",
		Short: "read and compile a policy, apply nothing",
		Args:  exactly(1, "POLICY, a file"),
		RunE:  func(c *cobra.Command, args []string) error { return check(c.Context(), e, args[0]) },
	}
	e.jsonFlag(c)
	return c
}

// checkReport is the answer of check as JSON.
type checkReport struct {
	Policy string       `json:"policy"`
	OK     bool         `json:"ok"`
	Errors []checkError `json:"errors"`
	Notes  []string     `json:"notes"`
	*checkCounts
}

type checkError struct {
	Line int    `json:"line"` // 0 when the message says where
	Col  int    `json:"col"`
	Msg  string `json:"msg"`
	Hint string `json:"hint,omitempty"`
}

type checkCounts struct {
	Sets     int `json:"sets"`
	Entries  int `json:"entries"`
	Rules    int `json:"rules"`
	Services int `json:"services"`
	Checks   int `json:"checks"`
}

func check(ctx context.Context, e *env, file string) error {
	c, err := e.compiled(ctx, file)
	if err == nil {
		_, err = interruptible(ctx, func() (*control.Output, error) { return c.Output(compile.TargetXDP) })
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if e.json {
		return checkJSON(e, file, c, err)
	}
	if err != nil {
		return err
	}
	e.notes(c.NotesFor(compile.TargetXDP))
	n := counts(c)
	e.println("%s: ok: %s (%s), %s, %s, %s", file, things(n.Sets, "set", "sets"), things(n.Entries, "entry", "entries"),
		things(n.Rules, "rule", "rules"), things(n.Services, "service", "services"), things(n.Checks, "check", "checks"))
	return nil
}

// checkJSON prints the report, and fails silently when the report says what is wrong.
func checkJSON(e *env, file string, c *control.Compiled, err error) error {
	report := checkReport{Policy: file, OK: err == nil, Errors: []checkError{}, Notes: []string{}}
	if err == nil {
		n := counts(c)
		report.checkCounts = &n
		report.Notes = append(report.Notes, c.NotesFor(compile.TargetXDP)...)
		return e.printJSON(report)
	}
	for _, one := range leaves(err) {
		entry := checkError{Msg: one.Error(), Hint: hint(one)}
		var p *policy.Error
		if errors.As(one, &p) {
			entry = checkError{Line: p.Line, Col: p.Col, Msg: p.Msg, Hint: p.Hint}
		}
		report.Errors = append(report.Errors, entry)
	}
	return errors.Join(e.printJSON(report), errFailed)
}

// counts counts what the policy's author wrote.
func counts(c *control.Compiled) checkCounts {
	n := checkCounts{
		Sets: len(c.Policy.Sets) + len(c.Policy.Names), Rules: len(c.Policy.Rules), Services: len(c.Policy.Services),
		Checks: bits.OnesCount64(uint64(c.Policy.Checks)),
	}
	for _, s := range c.Program.Sets {
		if s.Name != "" {
			n.Entries += s.Entries
		}
	}
	for _, s := range c.Program.Names {
		if s.Name != "" {
			n.Entries += len(s.Names)
		}
	}
	return n
}
