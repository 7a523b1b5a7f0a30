// SPDX-License-Identifier: Apache-2.0

package smt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits contains the limits of a query.
type Limits struct {
	Time   time.Duration // CPU time of the whole query, so that the result does not depend on the load of the machine; 0: a minute
	Memory int           // megabytes; 0: 2,000
}

// product returns the name of an uninterpreted function of a width that replaces multiplications in a first query. Two products of the same factors
// are equal, and nothing else is known about products. If a formula holds for such products, it also holds for real ones, and z3 need not model
// multipliers.
func product(width uint8) string { return fmt.Sprintf("product%d", width) }

// Answer is the answer of z3 to a formula.
type Answer uint8

// The answers.
const (
	Unknown       Answer = iota // z3 gave up, because the time or the memory did not suffice
	Unsatisfiable               // the formula holds for no values
	Satisfiable                 // a model was found
)

// String is a word for reports.
func (a Answer) String() string {
	return [...]string{Unknown: "gave up", Unsatisfiable: "proved", Satisfiable: "counterexample"}[a]
}

// MarshalText is the text for JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ErrNoSolver is the error if z3 is not installed.
var ErrNoSolver = errors.New("z3 is not installed (Debian's package z3): `apt-get install z3`")

// Available reports whether z3 is installed.
func Available() bool {
	_, err := exec.LookPath("z3")
	return err == nil
}

// Solve asks z3 whether any values satisfy a formula. If so, the returned model has the values of the formula's variables and applications. For a
// constant formula it starts no process. If the formula depends on products, Solve first tries attempts: conditions under which z3 may find values
// faster.
func (c *Context) Solve(ctx context.Context, l Limits, formula *Term, attempts ...*Term) (Answer, *Model, error) {
	if formula.IsFalse() {
		return Unsatisfiable, nil, nil
	}
	if l.Time == 0 {
		l.Time = time.Minute
	}
	p := newPrinter()
	p.visit(formula)
	defer func() { c.Used += p.used }()
	answer, m, err := p.ask(ctx, l, formula)
	if answer != Satisfiable || err != nil || !p.multiplies || m.Eval(formula) == 1 { // the values also satisfy the formula with real products
		return answer, m, err
	}
	p.exact = true
	// With the factors that z3 found, real products may also satisfy the formula.
	attempts = append([]*Term{p.factors(c, m)}, attempts...)
	for i, attempt := range attempts {
		left := Limits{Time: l.Time/2 - p.used, Memory: l.Memory} // the other half is for the query without a condition
		if left.Time < leastTime {
			break
		}
		left.Time = max(leastTime, left.Time/time.Duration(len(attempts)-i)) // otherwise one attempt takes all of the time
		tried := newPrinter()
		tried.exact = true
		tried.visit(c.and(formula, attempt))
		answer, m, err := tried.ask(ctx, left, c.and(formula, attempt))
		p.used += tried.used
		if answer == Satisfiable || err != nil {
			return answer, m, err
		}
	}
	if l.Time -= p.used; l.Time < leastTime {
		return Unknown, nil, nil
	}
	return p.ask(ctx, l, formula)
}

// leastTime is the shortest limit for z3: the kernel limits CPU time in seconds (setrlimit(2), RLIMIT_CPU).
const leastTime = time.Second

// factors returns a formula that holds if all factors have the values of a model.
func (p *printer) factors(c *Context, m *Model) *Term {
	out := c.True()
	for _, t := range p.order {
		if t.Op == OpMul {
			for _, a := range t.Args {
				out = c.and(out, c.Eq(a, c.Const(a.Width, m.Eval(a))))
			}
		}
	}
	return out
}

// ask runs a query.
func (p *printer) ask(ctx context.Context, l Limits, formula *Term) (Answer, *Model, error) {
	var in bytes.Buffer
	p.write(&in, formula)
	out, used, err := run(ctx, l, &in)
	p.used += used
	if err != nil {
		return Unknown, nil, err
	}
	first, rest, _ := strings.Cut(out, "\n")
	switch strings.TrimSpace(first) {
	case "unsat":
		return Unsatisfiable, nil, nil
	case "sat":
		m, err := p.model(rest)
		return Satisfiable, m, err
	case "unknown", "timeout":
		return Unknown, nil, nil
	}
	return Unknown, nil, fmt.Errorf("z3: %s", strings.TrimSpace(out[:min(len(out), 500)]))
}

func run(ctx context.Context, l Limits, in io.Reader) (answer string, used time.Duration, err error) {
	path, err := exec.LookPath("z3")
	if err != nil {
		return "", 0, ErrNoSolver
	}
	if l.Memory == 0 {
		l.Memory = 2000
	}
	const busy = 20 // the factor by which a query may take longer on a busy machine
	limited, cancel := context.WithTimeout(ctx, busy*l.Time)
	defer cancel()
	cmd := exec.CommandContext(limited, path, "-in", "-smt2", fmt.Sprintf("-memory:%d", l.Memory))
	cmd.Stdin = in
	out, err := output(cmd, l.Time)
	if cmd.ProcessState != nil {
		used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", used, ctx.Err()
	case limited.Err() != nil || cmd.ProcessState != nil && !cmd.ProcessState.Exited():
		return "timeout", used, nil
	case err != nil && !errors.As(err, &exit): // z3 ends with 1 after (get-value) of an unsatisfiable formula
		return "", used, fmt.Errorf("z3: %w", err)
	case len(out) == 0:
		return "", used, fmt.Errorf("z3: no answer: %w", err)
	case bytes.Contains(out, []byte("out of memory")):
		return "unknown", used, nil
	}
	return string(out), used, nil
}

// output runs a command, with a limit of its CPU time.
func output(cmd *exec.Cmd, most time.Duration) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	seconds := uint64(max(1, most.Seconds()+0.5))
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("limiting its time: %w", err)
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// printer writes a formula as SMT-LIB.
type printer struct {
	order []*Term // each term after its arguments
	seen  map[*Term]bool
	asked []*Term // variables and applications

	used              time.Duration
	multiplies, exact bool // the formula has products; the products are real ones
}

func newPrinter() *printer { return &printer{seen: map[*Term]bool{}} }

// visit sorts a term and its parts. It does not use recursion, because terms are deep.
func (p *printer) visit(root *Term) {
	type frame struct {
		t    *Term
		next int
	}
	stack := []frame{{t: root}}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if f.next == 0 && p.seen[f.t] {
			stack = stack[:len(stack)-1]
			continue
		}
		if f.next < len(f.t.Args) {
			a := f.t.Args[f.next]
			f.next++
			if !p.seen[a] {
				stack = append(stack, frame{t: a})
			}
			continue
		}
		if !p.seen[f.t] {
			p.seen[f.t] = true
			p.order = append(p.order, f.t)
			p.multiplies = p.multiplies || f.t.Op == OpMul
			if f.t.Op == OpVar || f.t.Op == OpApply {
				p.asked = append(p.asked, f.t)
			}
		}
		stack = stack[:len(stack)-1]
	}
}

func sort(width uint8) string {
	if width == 0 {
		return "Bool"
	}
	return fmt.Sprintf("(_ BitVec %d)", width)
}

// ref returns the text that refers to a term.
func ref(t *Term) string {
	switch {
	case t.Op == OpConst && t.Width == 0:
		return strconv.FormatBool(t.Value == 1)
	case t.Op == OpConst:
		return fmt.Sprintf("(_ bv%d %d)", t.Value, t.Width)
	case t.Op == OpVar:
		return "|" + t.Name + "|"
	}
	return fmt.Sprintf("t%d", t.id)
}

var names = map[Op]string{
	OpNot: "not", OpAnd: "and", OpOr: "or", OpIte: "ite", OpEq: "=", OpULT: "bvult", OpULE: "bvule", OpSLT: "bvslt", OpSLE: "bvsle",
	OpAdd: "bvadd", OpSub: "bvsub", OpMul: "bvmul", OpBitAnd: "bvand", OpBitOr: "bvor", OpBitXor: "bvxor", OpShl: "bvshl", OpLshr: "bvlshr",
	OpAshr: "bvashr", OpConcat: "concat",
}

// write writes the whole query. The shift counts of eBPF are already masked, so SMT-LIB's shifts have the same meaning.
func (p *printer) write(w io.Writer, formula *Term) {
	b := bufio.NewWriter(w)
	defer b.Flush()
	fmt.Fprintln(b, "(set-option :produce-models true)\n(set-logic QF_UFBV)")
	declared := map[string]bool{}
	var lets bytes.Buffer // z3 takes seconds to read some hundred functions without arguments (define-fun) that use one another
	depth := 0
	for _, t := range p.order {
		switch t.Op {
		case OpConst:
			continue
		case OpVar:
			fmt.Fprintf(b, "(declare-const |%s| %s)\n", t.Name, sort(t.Width))
			continue
		case OpApply:
			if !declared[t.Name] {
				declared[t.Name] = true
				var of []string
				for _, a := range t.Args {
					of = append(of, sort(a.Width))
				}
				fmt.Fprintf(b, "(declare-fun |%s| (%s) %s)\n", t.Name, strings.Join(of, " "), sort(t.Width))
			}
		}
		head := names[t.Op]
		if t.Op == OpMul && !p.exact {
			head = product(t.Width)
			if !declared[head] {
				declared[head] = true
				fmt.Fprintf(b, "(declare-fun %s (%s %s) %s)\n", head, sort(t.Width), sort(t.Width), sort(t.Width))
			}
		}
		switch t.Op {
		case OpApply:
			head = "|" + t.Name + "|"
		case OpExtract:
			head = fmt.Sprintf("(_ extract %d %d)", int(t.Value)+int(t.Width)-1, t.Value)
		}
		fmt.Fprintf(&lets, "(let ((t%d (%s", t.id, head)
		for _, a := range t.Args {
			lets.WriteByte(' ')
			lets.WriteString(ref(a))
		}
		lets.WriteString(")))\n")
		depth++
	}
	for _, t := range p.asked {
		if t.Op != OpVar {
			fmt.Fprintf(b, "(declare-const %s %s)\n", value(t), sort(t.Width))
		}
	}
	b.WriteString("(assert ")
	b.Write(lets.Bytes())
	fmt.Fprintf(b, "(and %s", ref(formula))
	for _, t := range p.asked {
		if t.Op != OpVar {
			fmt.Fprintf(b, " (= %s %s)", value(t), ref(t))
		}
	}
	fmt.Fprintf(b, ")%s)\n(check-sat)\n", strings.Repeat(")", depth))
	if len(p.asked) > 0 {
		b.WriteString("(get-value (")
		for _, t := range p.asked {
			b.WriteString(value(t) + " ")
		}
		b.WriteString("))\n")
	}
}

// value returns the name of the constant for the value of a term in the answer.
func value(t *Term) string {
	if t.Op == OpVar {
		return ref(t)
	}
	return fmt.Sprintf("v%d", t.id)
}

// model reads the answer to (get-value): values in the order of the query.
func (p *printer) model(text string) (*Model, error) {
	values := make([]uint64, 0, len(p.asked))
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '(' || r == ')' })
	for i := 1; i < len(fields); i += 2 {
		v, err := parseValue(fields[i])
		if err != nil {
			return nil, fmt.Errorf("z3: a value of %s: %w", fields[i-1], err)
		}
		values = append(values, v)
	}
	if len(values) != len(p.asked) {
		return nil, fmt.Errorf("z3: %d values of %d", len(values), len(p.asked))
	}
	m := &Model{Vars: map[string]uint64{}}
	var applied []*Term
	of := map[*Term]uint64{}
	for i, t := range p.asked {
		if t.Op == OpVar {
			m.Vars[t.Name] = values[i]
		} else {
			applied = append(applied, t)
			of[t] = values[i]
		}
	}
	functions := map[string]uint64{}
	m.Apply = func(name string, args []uint64) uint64 { return functions[name+fmt.Sprint(args)] }
	for _, t := range applied { // each application after the applications in its arguments
		args := m.EvalAll(t.Args...)
		functions[t.Name+fmt.Sprint(args)] = of[t]
	}
	return m, nil
}

func parseValue(text string) (uint64, error) {
	switch {
	case text == "true":
		return 1, nil
	case text == "false":
		return 0, nil
	case strings.HasPrefix(text, "#x"):
		return strconv.ParseUint(text[2:], 16, 64)
	case strings.HasPrefix(text, "#b"):
		return strconv.ParseUint(text[2:], 2, 64)
	}
	return 0, fmt.Errorf("%q is no value", text)
}
