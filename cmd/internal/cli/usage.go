package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// usageError is a command line that is not understood.
type usageError struct{ msg, usage, hint string }

func (e *usageError) Error() string { return e.msg }

// usagef makes a usageError of a command.
func usagef(c *cobra.Command, hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), usage: c.UseLine(), hint: hint}
}

// usageOf is an error of reading what the command line says. A usage.Error becomes a usageError of c.
func usageOf(c *cobra.Command, err error) error {
	var wrong *wording.Error
	if !errors.As(err, &wrong) {
		return err
	}
	return usagef(c, cmp.Or(wrong.Hint, helpHint(c)), "%s", wrong.Text)
}

// least is the least value of a flag whose default of 0 stands for none, or for another number: the flag can be left out, but 0
// not be written.
func least[T ~int | ~int64](c *cobra.Command, flag string) T {
	if c.Flags().Changed(flag) {
		return 1
	}
	return 0
}

// exactly wants n arguments. what names them.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return usagef(c, helpHint(c), "missing argument: want %s", what)
		case len(args) > n:
			return usagef(c, helpHint(c), "unexpected argument %q: want %s only", args[n], what)
		}
		return nil
	}
}

// upTo wants no more than n arguments. what names them.
func upTo(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef(c, helpHint(c), "unexpected argument %q: want %s only", args[n], what)
		}
		return nil
	}
}

// none wants no arguments.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(c, helpHint(c), "unexpected argument %q", args[0])
	}
	return nil
}

func helpHint(c *cobra.Command) string {
	return fmt.Sprintf("`%s --help` explains it", c.CommandPath())
}

// unknownCommand is the error about a word that is no command of c.
func unknownCommand(c *cobra.Command, word string) error {
	hint := "`floodwall help` lists the commands"
	if near := c.SuggestionsFor(word); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q? %s", near[0], hint)
	}
	return usagef(c, hint, "unknown command %q", word)
}

// flagError is the error about a flag that c cannot take.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usagef(c, helpHint(c), "%v", err)
	}
	name := unknown.GetSpecifiedName()
	hint := helpHint(c)
	if near := nearestFlag(c, name); near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	if len(name) == 1 {
		return usagef(c, hint, "unknown flag -%s", name)
	}
	return usagef(c, hint, "unknown flag --%s", name)
}

// nearestFlag finds the flag of c that name may stand for. It has cobra measure the distance, as for commands.
func nearestFlag(c *cobra.Command, name string) string {
	words := &cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			words.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	if near := words.SuggestionsFor(name); len(near) > 0 {
		return near[0]
	}
	return ""
}
