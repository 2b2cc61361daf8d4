"""The application: thin Prefect flows over the stages of comfyfarm."""
