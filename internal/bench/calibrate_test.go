package bench

import (
	"os"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/testutil"
)

func TestCalibrate(t *testing.T) {
	testutil.RequireRoot(t)
	start := time.Now()
	o := tiny(t)
	if os.Getenv("FULL") != "" {
		o = Options{}
	}
	if os.Getenv("QUICK") != "" {
		o = Options{Quick: true}
	}
	c, err := Calibrate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(start))
	c.Table.WriteText(os.Stdout)
}
