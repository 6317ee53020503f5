#!/usr/bin/env bash
# robfig/cron 3.0.1, which Kubernetes 1.37 reads the schedules of CronJobs with, beside cronsim 2.7, which follows Debian's
# cron; Go 1.26, Python 3.11, seen 29 November 2026.
#
# cron runs on days that fit the day of the month or the day of the week, and where one of the two fields is a star, on
# those that fit both. For robfig/cron `*/2` is no star, for Debian's cron it is one: `0 3 */2 * 1-5` is "on odd days that are
# weekdays" to the latter, and "on odd days, and on weekdays" to a cluster. The runs of 2026:
#
#   robfig/cron: 315
#   cronsim: 132
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
export GOPATH="$folder/go" GOFLAGS=-mod=mod
cd "$folder"
cat > main.go <<'END'
package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	schedule, err := cron.ParseStandard("0 3 */2 * 1-5")
	if err != nil {
		panic(err)
	}
	count, end := 0, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := schedule.Next(time.Date(2025, 12, 31, 23, 59, 0, 0, time.UTC)); at.Before(end); at = schedule.Next(at) {
		count++
	}
	fmt.Println(count)
}
END
printf 'module finding\n\ngo 1.21\n\nrequire github.com/robfig/cron/v3 v3.0.1\n' > go.mod
cluster=$(go run . 2>errors) || { cat errors; exit 1; }
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check cronsim==2.7
debian=$(environment/bin/python -c '
from datetime import datetime
from itertools import takewhile
from cronsim import CronSim
end = datetime(2027, 1, 1)
print(len(list(takewhile(lambda at: at < end, CronSim("0 3 */2 * 1-5", datetime(2025, 12, 31, 23, 59))))))
')
printf 'robfig/cron: %s\ncronsim: %s\n' "$cluster" "$debian"
[ "$cluster" = 315 ] && [ "$debian" = 132 ]
