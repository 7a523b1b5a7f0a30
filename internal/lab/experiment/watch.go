package experiment

import "time"

// synproxyWatch looks at a counter at times.
type synproxyWatch struct {
	read  func() (uint64, error)
	ended chan struct{}
	done  chan struct{}

	first, last reading // of all the time, and of the part
	least       float64 // -1: no part is over
	err         error
}

// reading is a counter at a moment.
type reading struct {
	count uint64
	at    time.Time
}

// since is how much a counter has grown per second.
func (r reading) since(before reading) float64 {
	return float64(r.count-before.count) / r.at.Sub(before.at).Seconds()
}

// watchPart is how long a part of the time is that a rate is looked at in.
const watchPart = 50 * time.Millisecond

// watchRate begins to look at a counter.
func watchRate(read func() (uint64, error)) *synproxyWatch {
	w := &synproxyWatch{read: read, ended: make(chan struct{}), done: make(chan struct{}), least: -1}
	w.look()
	w.first = w.last
	go w.run()
	return w
}

func (w *synproxyWatch) run() {
	defer close(w.done)
	ticker := time.NewTicker(watchPart)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.part()
		case <-w.ended:
			return
		}
	}
}

// look reads the counter.
func (w *synproxyWatch) look() {
	n, err := w.read()
	if err != nil {
		w.err = err
		return
	}
	w.last = reading{n, time.Now()}
}

// part ends a part.
func (w *synproxyWatch) part() {
	before := w.last
	w.look()
	if w.err != nil {
		return
	}
	if rate := w.last.since(before); w.least < 0 || rate < w.least {
		w.least = rate
	}
}

// stop ends the watch, and returns the rate per second in all of the time and in its weakest part.
func (w *synproxyWatch) stop() (mean, least float64, err error) {
	close(w.ended)
	<-w.done
	w.look()
	mean = w.last.since(w.first)
	if w.least < 0 {
		return mean, mean, w.err
	}
	return mean, w.least, w.err
}
