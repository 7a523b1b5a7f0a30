package cli

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

// Usagef makes a usageError of a command.
func Usagef(c *cobra.Command, hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), usage: c.UseLine(), hint: hint}
}

// UsageOf is an error of reading what the command line says. A usage.Error becomes a usageError of c.
func UsageOf(c *cobra.Command, err error) error {
	var wrong *wording.Error
	if !errors.As(err, &wrong) {
		return err
	}
	return Usagef(c, cmp.Or(wrong.Hint, HelpHint(c)), "%s", wrong.Text)
}

// Least is the least value of a flag whose default of 0 stands for none, or for another number: the flag can be left out, but 0
// not be written.
func Least[T ~int | ~int64](c *cobra.Command, flag string) T {
	if c.Flags().Changed(flag) {
		return 1
	}
	return 0
}

// Exactly wants n arguments. what names them.
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

// Some wants one argument or more. what names them.
func Some(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef(c, HelpHint(c), "missing argument: want %s", what)
		}
		return nil
	}
}

// UpTo wants no more than n arguments. what names them.
func UpTo(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return Usagef(c, HelpHint(c), "unexpected argument %q: want %s only", args[n], what)
		}
		return nil
	}
}

// None wants no arguments.
func None(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef(c, HelpHint(c), "unexpected argument %q", args[0])
	}
	return nil
}

// HelpHint leads to the help of a command.
func HelpHint(c *cobra.Command) string {
	return fmt.Sprintf("`%s --help` explains it", c.CommandPath())
}

// UnknownCommand is the error about a word that is no command of c.
func UnknownCommand(c *cobra.Command, word string) error {
	hint := fmt.Sprintf("`%s help` lists the commands", c.Root().Name())
	if near := c.SuggestionsFor(word); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q? %s", near[0], hint)
	}
	return Usagef(c, hint, "unknown command %q", word)
}

// flagError is the error about a flag that c cannot take.
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
