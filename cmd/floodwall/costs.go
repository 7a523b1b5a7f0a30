package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/floodwall/floodwall/internal/cost"
)

// costs reads the cost model of this host. It is nil when there is none.
func (e *env) costs() (*cost.Model, error) {
	host, err := cost.ThisHost()
	if err != nil {
		return nil, err
	}
	m, err := cost.Read(e.state, host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// costsOrWarn is costs for who can do without: why a model is of no use is a warning.
func (e *env) costsOrWarn() *cost.Model {
	m, err := e.costs()
	if err != nil {
		e.warning(message(err))
		e.stderrLine("hint", hint(err))
		return nil
	}
	return m
}

// freshCosts returns a function that is costsOrWarn, and reads the file again when it has changed.
func (e *env) freshCosts() func() *cost.Model {
	var read time.Time // the file's time
	var model *cost.Model
	return func() *cost.Model {
		info, err := os.Stat(cost.Path(e.state))
		if err != nil {
			read, model = time.Time{}, nil
			return nil
		}
		if !info.ModTime().Equal(read) {
			read, model = info.ModTime(), e.costsOrWarn()
		}
		return model
	}
}
