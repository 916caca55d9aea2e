"""The gateway: clients in any language put, reserve and delete tasks, over beanstalkd's protocol or one of JSON."""
