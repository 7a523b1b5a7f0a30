// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// usageError is an error of the user in the command line.
type usageError struct{ msg, usage, hint string }

func (e *usageError) Error() string { return e.msg }

// Usagef returns a usageError of the command c.
func Usagef(c *cobra.Command, hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), usage: c.UseLine(), hint: hint}
}

// UsageOf returns the error for a command line that cannot be parsed. It converts a wording.Error into a usageError of c. Other errors stay.
func UsageOf(c *cobra.Command, err error) error {
	var wrong *wording.Error
	if !errors.As(err, &wrong) {
		return err
	}
	return Usagef(c, cmp.Or(wrong.Hint, HelpHint(c)), "%s", wrong.Text)
}

// Least returns the minimum value of a flag: 1 if the user set the flag, else 0. It is for flags with a default of 0 that stands for no value or for
// another number. The user can omit such a flag, but cannot set it to 0.
func Least[T ~int | ~int64](c *cobra.Command, flag string) T {
	if c.Flags().Changed(flag) {
		return 1
	}
	return 0
}

// Exactly accepts exactly n arguments. The parameter what is their name in error messages.
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return Usagef(c, HelpHint(c), "missing argument: want %s", what)
		case len(args) > n:
			return Usagef(c, HelpHint(c), "unexpected argument %q: want %s only", args[n], what)
		}
		return nil
	}
}

// Some accepts one or more arguments. The parameter what is their name in error messages.
func Some(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef(c, HelpHint(c), "missing argument: want %s", what)
		}
		return nil
	}
}

// UpTo accepts at most n arguments. The parameter what is their name in error messages.
func UpTo(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return Usagef(c, HelpHint(c), "unexpected argument %q: want %s only", args[n], what)
		}
		return nil
	}
}

// None accepts no arguments.
func None(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef(c, HelpHint(c), "unexpected argument %q", args[0])
	}
	return nil
}

// HelpHint returns a hint that names the help of a command.
func HelpHint(c *cobra.Command) string {
	return fmt.Sprintf("`%s --help` explains it", c.CommandPath())
}

// UnknownCommand returns the error for a word that is not a subcommand of c.
func UnknownCommand(c *cobra.Command, word string) error {
	hint := fmt.Sprintf("`%s help` lists the commands", c.Root().Name())
	near := c.SuggestionsFor(word)
	for _, sub := range c.Commands() { // a word for the same thing comes before a similar word
		if slices.Contains(sub.SuggestFor, word) {
			near = []string{sub.Name()}
		}
	}
	if len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q? %s", near[0], hint)
	}
	return Usagef(c, hint, "unknown command %q", word)
}

// flagError returns the error for a flag that c does not accept.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return Usagef(c, HelpHint(c), "%v", err)
	}
	name := unknown.GetSpecifiedName()
	hint := HelpHint(c)
	if near := nearestFlag(c, name); near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	if len(name) == 1 {
		return Usagef(c, hint, "unknown flag -%s", name)
	}
	return Usagef(c, hint, "unknown flag --%s", name)
}

// nearestFlag returns the flag of c that is most similar to name. It uses the edit distance that cobra uses for commands.
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
